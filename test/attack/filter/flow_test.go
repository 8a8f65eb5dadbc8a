package filter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// datagram is one that comes from the internet.
type datagram struct {
	from, to netip.AddrPort // from nowhere in particular if not valid
	text     string
}

// send sends datagrams in this order, all of them from one CPU so that they
// arrive in it.
func send(w *rig.World, all ...datagram) {
	w.Helper()
	rig.Must(w.T, w.Lab.Internet.Do(func() error {
		var cpu unix.CPUSet
		if err := unix.SchedGetaffinity(0, &cpu); err != nil {
			return err
		}
		for i := range len(cpu) * 64 {
			if cpu.IsSet(i) && cpu.Count() > 1 {
				cpu.Clear(i)
			}
		}
		if err := unix.SchedSetaffinity(0, &cpu); err != nil {
			return err
		}
		for _, d := range all {
			dialer := net.Dialer{}
			if d.from.IsValid() {
				dialer.LocalAddr = net.UDPAddrFromAddrPort(d.from)
				dialer.Control = reusable
			}
			c, err := dialer.DialContext(w.Context(), "udp", d.to.String())
			if err != nil {
				return err
			}
			_, err = c.Write([]byte(d.text))
			if err = errors.Join(err, c.Close()); err != nil {
				return err
			}
		}
		return nil
	}))
}

// reusable lets a socket have an address on which the lab's servers are.
func reusable(_, _ string, c syscall.RawConn) error {
	var err error
	cerr := c.Control(func(fd uintptr) {
		err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	})
	return errors.Join(err, cerr)
}

// reach connects to a box from an address of the internet, or from the gateway
// if that is not valid, and says whether an echo came back. Where it should, it is
// waited for.
func reach(w *rig.World, from netip.Addr, to netip.AddrPort, should bool) bool {
	w.Helper()
	limit := 700 * time.Millisecond
	if should {
		limit = lab.Patience
	}
	ctx, cancel := context.WithTimeout(w.Context(), limit)
	defer cancel()
	local := netip.AddrPort{}
	if from.IsValid() {
		local = netip.AddrPortFrom(from, 0)
	}
	c, err := w.Lab.Internet.Dial(ctx, "tcp", to.String(), local)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(lab.Patience))
	_, werr := c.Write([]byte("x"))
	_, rerr := c.Read(make([]byte, 1))
	return werr == nil && rerr == nil
}

var _ = rig.Also(TestInboundPorts, rig.Everywhere)

func TestInboundPorts(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{Files: []lab.File{rig.Settings("inbound: [3003/udp]\n")}, Env: []string{"AGENT_INIT_INBOUND=3000, 3003/udp"}})
	open := w.Beside(lab.BoxOptions{})
	evil4, evil6 := rig.Named("evil.test")
	for _, b := range []*lab.Box{w.Box, open} {
		var ports []uint16
		for _, port := range []uint16{2999, 3000, 3001, 3003} {
			w.AsAgent(b, "listen", "-for", "60s", fmt.Sprintf(":%d", port))
			ports = append(ports, port)
		}
		w.Bound(b, "tcp6", ports...)
		var tries sync.WaitGroup // those that are refused get no answer, and wait for it together
		for _, tt := range []struct {
			from, to netip.Addr
		}{
			{netip.Addr{}, b.Addr4()}, {evil4, b.Addr4()}, {evil6, b.Addr6()}, {b.Neighbor4(), b.Addr4()}, {b.Neighbor6(), b.Addr6()},
			{netip.MustParseAddr("169.254.169.254"), b.Addr4()},
		} {
			for _, port := range ports {
				tries.Go(func() {
					want := b == open || port == 3000
					if got := reach(w, tt.from, netip.AddrPortFrom(tt.to, port), want); got != want {
						t.Errorf("open box: %t: from %s to port %d: connected: %t", b == open, tt.from, port, got)
					}
				})
			}
		}
		tries.Wait()
		if !reach(w, netip.Addr{}, netip.AddrPortFrom(b.Addr4(), 3000), true) {
			t.Error("the inbound port is closed by now")
		}
	}
	// Who publishes a port and forgets it in the policy finds it told.
	refused := w.Audited("the refused connections", func(e rig.Event) bool { return e.By == "outside" && e.Port == 3001 })
	if refused.Kind != "drop" || refused.Verdict != "deny" || refused.Reason != "a connection from outside; port 3001 is not in inbound" {
		t.Errorf("the log: %+v", refused)
	}
	if r := w.Root("agent-init", "explain", "3001"); !strings.Contains(r.Stdout, "port 3001 listens and is not in inbound") {
		t.Errorf("explain: %s", r)
	}
	if r := w.Root("agent-init", "doctor"); !strings.Contains(r.Stdout, "port 3001 listens and is not in inbound") || strings.Contains(r.Stdout, "port 3000 listens") {
		t.Errorf("doctor: %s", r)
	}
	// Neither is the port a way out.
	w.Blocked("udp", "-from", "3003", rig.Target(evil4.String(), 3003))
	w.Blocked("connect", "inet", "stream", "0", rig.Target(evil4.String(), 3000))
	w.Sealed(rig.NotGuards, func(p *lab.Packet) bool { return p.Proto != unix.IPPROTO_TCP || p.SrcPort != 3000 })
}

var _ = rig.Also(TestSourcePortOpensNothing, rig.OverXtables)

func TestSourcePortOpensNothing(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{Files: []lab.File{rig.Settings("inbound: [6001/udp]\n")}})
	open := w.Beside(lab.BoxOptions{})
	evil4, evil6 := rig.Named("evil.test")
	ok4, _ := rig.Named("ok.test")
	w.Works("resolve", "ok.test")
	for _, b := range []*lab.Box{w.Box, open} {
		// It has asked evil4:53 first, as for a hole in a NAT.
		p := w.AsAgent(b, "recv", "-to", rig.Target(evil4.String(), 53), "-for", "20s", ":6000", ":6001")
		w.Bound(b, "udp6", 6000, 6001)
		var all []datagram
		for _, from := range []netip.AddrPort{
			netip.AddrPortFrom(evil4, 53), netip.AddrPortFrom(evil6, 53), netip.AddrPortFrom(lab.Upstream4, 53), netip.AddrPortFrom(lab.Upstream6, 53),
			netip.AddrPortFrom(evil4, 443), netip.AddrPortFrom(evil4, 123), netip.AddrPortFrom(evil4, 67), netip.AddrPortFrom(ok4, 443),
			netip.AddrPortFrom(b.Gateway4(), 53), netip.AddrPortFrom(b.Neighbor4(), 5353),
		} {
			to := b.Addr4()
			if from.Addr().Is6() {
				to = b.Addr6()
			}
			all = append(all, datagram{from, netip.AddrPortFrom(to, 6000), "order"})
		}
		send(w, append(all, datagram{to: netip.AddrPortFrom(b.Addr4(), 6001), text: "end"})...)
		r, err := lab.ParsePoke(p.Wait(0).Stdout)
		rig.Must(t, err)
		got, _ := r.Detail["datagrams"].([]any)
		var orders []any // what else came is the guard's answer: port 53 is redirected
		for _, d := range got {
			if strings.HasSuffix(d.(string), "order") {
				orders = append(orders, d)
			}
		}
		if r.Detail["ended"] != true || (b == open) != (len(orders) >= 10) || (b == w.Box) != (len(orders) == 0) {
			t.Errorf("open box: %t: got %v: %s", b == open, orders, r)
		}
	}
	w.Sealed(rig.NotGuards)
}

var _ = rig.Also(TestRelayIsNoWayOut, rig.OverXtables|rig.InUp)

func TestRelayIsNoWayOut(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	open := w.Beside(lab.BoxOptions{})
	evil4, _ := rig.Named("evil.test")
	w.Works("resolve", "ok.test")
	ok4, _ := rig.Named("ok.test")
	for _, b := range []*lab.Box{w.Box, open} {
		w.AsAgent(b, "relay", "-for", "60s", "127.0.0.1:8080", rig.Target(evil4.String(), 8443))
		w.AsAgent(b, "relay", "-for", "60s", "[::1]:8081", rig.Target(evil4.String(), 443))
		w.Bound(b, "tcp", 8080)
		w.Bound(b, "tcp6", 8081)
		poke := w.Poke
		if b == open {
			poke = func(args ...string) lab.Poke { return b.Poke(lab.AgentUID, args...) }
		}
		for _, args := range [][]string{
			{"tcp", "-send", "x", "127.0.0.1:8080"}, {"tcp", "-send", "x", rig.Target(b.Addr4().String(), 8080)}, // the second isn't listening
			{"http", "-addr", "[::1]:8081", "https://evil.test/"},
		} {
			p := poke(args...)
			if want := b == open && !strings.Contains(strings.Join(args, " "), b.Addr4().String()); p.OK != want {
				t.Errorf("open box: %t: %v: %s", b == open, args, p)
			}
		}
	}
	// A relay may pass on what is allowed, and root's are no better than the agent's.
	w.AsAgent(w.Box, "relay", "-for", "60s", "127.0.0.1:8082", rig.Target(ok4.String(), 443))
	w.Box.ExecStart(lab.Cmd{Args: []string{"poke", "relay", "-for", "60s", "127.0.0.1:8083", rig.Target(evil4.String(), 8443)}})
	w.Bound(w.Box, "tcp", 8082, 8083)
	w.Works("http", "-addr", "127.0.0.1:8082", "https://ok.test/")
	w.Blocked("tcp", "-send", "x", "127.0.0.1:8083")
	w.Sealed(lab.ToAddr(evil4.String()))

	// What agent-init itself has on loopback serves nobody as a proxy.
	for _, port := range ownPorts(w) {
		if port >= 8080 && port <= 8083 {
			continue
		}
		for _, request := range []string{
			"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
			"\x05\x01", "\x04\x01\x01\xbb\x2d\x1e\x42\x06x",
		} {
			if strings.ContainsRune(request, 0) {
				continue
			}
			w.Poke("tcp", "-timeout", "200ms", "-send", request, fmt.Sprintf("127.0.0.1:%d", port))
		}
		w.Blocked("dns", fmt.Sprintf("127.0.0.1:%d", port), "evil.test", "A")
		w.Blocked("dns", "-tcp", fmt.Sprintf("127.0.0.1:%d", port), "evil.test", "A")
	}
	w.Unasked("evil.test")
	w.Sealed(rig.NotGuards, lab.Not(lab.ToAddr(ok4.String())))
}

// ownPorts are the TCP ports on 127.0.0.1 where something listens in the box.
func ownPorts(w *rig.World) (ports []uint16) {
	w.Helper()
	for line := range strings.Lines(w.Root("cat", "/proc/net/tcp").Stdout) {
		f := strings.Fields(line) // see proc_net_tcp.rst: state 0A is LISTEN
		if len(f) > 3 && f[3] == "0A" && strings.HasPrefix(f[1], "0100007F:") {
			var port uint16
			if _, err := fmt.Sscanf(f[1], "0100007F:%X", &port); err != nil {
				w.Fatal(err)
			}
			ports = append(ports, port)
		}
	}
	if len(ports) == 0 {
		w.Error("nothing listens on loopback, not even the resolver")
	}
	return ports
}
