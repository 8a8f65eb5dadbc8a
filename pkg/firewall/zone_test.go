package firewall

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
	labnet "github.com/agent-init/agent-init/internal/netns"
)

// askFrom is ask from a certain port, by a socket that ends without a word, so that its
// flow goes on where the kernel tracks it.
func askFrom(t *testing.T, network string, port int, ap netip.AddrPort, uid int, msg string) string {
	t.Helper()
	var got string
	var err error
	var c net.Conn
	err = labnet.OnThread(func() error {
		if err := become(uid); err != nil {
			return err
		}
		var from net.Addr = &net.TCPAddr{Port: port}
		if network == "udp" {
			from = &net.UDPAddr{Port: port}
		}
		d := net.Dialer{LocalAddr: from, Timeout: time.Second}
		if c, err = d.Dial(network, ap.String()); err != nil {
			return err
		}
		got, err = ping(c, msg)
		return err
	})
	if c, ok := c.(*net.TCPConn); ok {
		raw, err := c.SyscallConn()
		must(t, err)
		must(t, raw.Control(func(fd uintptr) { must(t, unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1)) }))
	}
	if c != nil {
		c.Close()
	}
	if err != nil {
		return err.Error()
	}
	return got
}

// X37: a flow of the agent's from any port is no matter for what the guard sends from
// that port to the same place, and the other way round.
func TestKernelGuardZone(t *testing.T) {
	if !onBackends(t) {
		return
	}
	l := newLab(t)
	for _, port := range []uint16{53, 443} {
		l.serve(port)
	}
	for _, a := range []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()} {
		echo(t, at(a, 41053), "guard ")
		echo(t, at(a, 41443), "gate ")
	}
	f := open(t, Options{})
	if !f.Zones {
		mustrun.Lacks(t, "the kernel has no zones")
	}
	c := Config{DNSPort4: 41053, DNSPort6: 41053, GatePort4: 41443, GatePort6: 41443, Upstreams: []netip.AddrPort{at(far4, 53), at(far6, 53)}}
	apply(t, f, c, leasedTo(Gated, tcpLeases(443, far4, far6)...)...)
	must(t, f.Verify(context.Background()))
	for i, a := range []netip.Addr{far4, far6} {
		port := 7000 + 10*i
		if got := askFrom(t, "udp", port, at(a, 53), agentUID, "first"); got != "guard first" {
			t.Errorf("%v: the agent: %s", a, got)
		}
		if got := askFrom(t, "udp", port, at(a, 53), guardUID, "question"); got != "question" {
			t.Errorf("%v: the guard's question is a part of the agent's flow: %s", a, got)
		}
		if got := askFrom(t, "tcp", port+1, at(a, 443), guardUID, "onward"); got != "onward" {
			t.Errorf("%v: the guard: %s", a, got)
		}
		if got := askFrom(t, "tcp", port+1, at(a, 443), agentUID, "next"); got != "gate next" {
			t.Errorf("%v: what is left of the guard's connection is in the agent's way: %s", a, got)
		}
	}
	// The same rules again, or others with the same guard, leave those of the zone.
	c.Allow = []Entry{{Prefix: single(other4), Proto: unix.IPPROTO_TCP, Port: 443}}
	apply(t, f, c)
	must(t, f.Verify(context.Background()))
	if got := askFrom(t, "udp", 7000, at(far4, 53), guardUID, "again"); got != "again" {
		t.Errorf("after other rules: %s", got)
	}
	must(t, f.FlushConntrack(context.Background()))
	for _, e := range []Element{{Addr: far4, Proto: unix.IPPROTO_UDP, Port: 53}, {Addr: far6, Proto: unix.IPPROTO_TCP, Port: 443}} {
		if fs := flowsOf(t, f); slices.Contains(fs, e) {
			t.Errorf("not forgotten: %v of %v", e, fs)
		}
	}
}
