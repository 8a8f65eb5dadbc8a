package attack

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

var _ = also(TestDenyCutsFlows, everywhere)

func TestDenyCutsFlows(t *testing.T) {
	const first = "ok.test:8443\nok.test:8444\nok.test:8445\nshared.test:8445\nok.test:4433/udp\nok2.test:8443\n45.30.9.9:8443\n45.30.9.10:8443\n"
	w := confine(t, first, lab.BoxOptions{})
	for _, name := range []string{"ok.test", "ok2.test", "shared.test"} {
		w.works("resolve", name)
	}
	ok4, ok6 := named("ok.test")
	other4, _ := named("ok2.test")
	pushed := w.push(8444)
	stream := func(addr netip.Addr, port uint16) *lab.Process {
		to := netip.AddrPortFrom(addr, port)
		p := w.asAgent(w.box, "tcp", "-hold", "10m", "-oneway", to.String())
		if !eventually(10*time.Second, func() bool { return w.received(to) > 0 }) {
			t.Fatalf("no stream to %s", to)
		}
		return p
	}
	// Not a packet has left since the reload returned, see below; here, the
	// program learns of it as soon as it sends.
	dies := func(what string, p *lab.Process) {
		t.Helper()
		select {
		case <-p.Done():
			r, err := lab.ParsePoke(p.Stdout())
			must(t, err)
			if r.OK || r.Errno != "ECONNRESET" && r.Errno != "EHOSTUNREACH" && r.Errno != "EPIPE" {
				t.Errorf("%s: not ended by the revocation: %s", what, r)
			}
		case <-time.After(lab.Patience):
			t.Errorf("%s: outlives its revocation", what)
		}
	}
	lives := func(what string, p *lab.Process, addr string) {
		t.Helper()
		before := w.received(netip.MustParseAddrPort(addr))
		if !eventually(10*time.Second, func() bool { return w.received(netip.MustParseAddrPort(addr)) > before+2 }) {
			t.Errorf("%s: died with others: %s%s", what, p.Stdout(), p.Stderr())
		}
	}
	revoked4, revoked6 := stream(ok4, 8443), stream(ok6, 8443)
	shared, named2 := stream(ok4, 8445), stream(other4, 8443)
	plain, plain2 := stream(netip.MustParseAddr("45.30.9.9"), 8443), stream(netip.MustParseAddr("45.30.9.10"), 8443)
	w.box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", "bash", "-c",
		fmt.Sprintf("exec 3<>/dev/tcp/%s/8444; exec cat <&3 >/dev/null", ok4)}})
	if !eventually(10*time.Second, func() bool { return pushed.Load() > 10 }) {
		t.Fatal("nothing is pushed")
	}
	w.works("udp", "-from", "5000", target(ok4.String(), 4433))

	if r := w.setPolicy("shared.test:8445\nok2.test:8443\n45.30.9.10:8443\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	w.box.ForgetPackets()
	dies("the removed name", revoked4)
	dies("the removed name over IPv6", revoked6)
	dies("the removed address", plain)
	w.blocked("udp", "-from", "5000", target(ok4.String(), 4433))
	w.blocked("tcp", target(ok4.String(), 8443))
	w.blocked("tcp", "45.30.9.9:8443")
	// What the far side goes on sending isn't even acknowledged.
	since := pushed.Load()
	if !eventually(10*time.Second, func() bool { return pushed.Load() > since+10 }) {
		t.Error("the far side could not go on: the stream was closed from inside")
	}
	gone := lab.Any(lab.ToAddr("45.30.9.9"), func(p *lab.Packet) bool { return p.Dst == ok4 && p.DstPort != 8445 }, lab.ToAddr(ok6.String()))
	w.sealed(gone)
	lives("another name of the same address", shared, target(ok4.String(), 8445))
	lives("another name", named2, target(other4.String(), 8443))
	lives("another address", plain2, "45.30.9.10:8443")

	// A deny entry revokes as well, and the other family of the streams too.
	if r := w.setPolicy("shared.test:8445\nok2.test:8443\n!ok2.test\n!shared.test\n45.30.9.10:8443\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	w.box.ForgetPackets()
	dies("the denied name", named2)
	dies("the denied name of a shared address", shared)
	lives("another address", plain2, "45.30.9.10:8443")
	w.sealed(gone, lab.ToAddr(other4.String()))
	w.sealed(lab.ToAddr(ok4.String()))
}

// push has the internet send without end to whoever connects to a port, and
// counts.
func (w *world) push(port uint16) *atomic.Int64 {
	w.Helper()
	w.lab.Claim("tcp", port)
	l, err := w.lab.Internet.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", port))
	must(w.T, err)
	w.Cleanup(func() { l.Close() })
	count := new(atomic.Int64)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		w.Cleanup(func() { c.Close() })
		for {
			if _, err := c.Write([]byte("order")); err != nil {
				return
			}
			count.Add(1)
			time.Sleep(10 * time.Millisecond) // the pace of the traffic
		}
	}()
	return count
}

// received is how much came to an address of the internet over TCP.
func (w *world) received(at netip.AddrPort) (bytes int64) {
	for _, c := range w.lab.Conns() {
		if c.Dst == at {
			bytes += c.Total
		}
	}
	return bytes
}
