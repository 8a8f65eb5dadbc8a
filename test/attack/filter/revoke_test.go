package filter

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestDenyCutsFlows, rig.Everywhere)

func TestDenyCutsFlows(t *testing.T) {
	const first = "ok.test:8443\nok.test:8444\nok.test:8445\nshared.test:8445\nok.test:4433/udp\nok2.test:8443\n45.30.9.9:8443\n45.30.9.10:8443\n"
	w := rig.Confine(t, first, lab.BoxOptions{})
	for _, name := range []string{"ok.test", "ok2.test", "shared.test"} {
		w.Works("resolve", name)
	}
	ok4, ok6 := rig.Named("ok.test")
	other4, _ := rig.Named("ok2.test")
	pushed := push(w, 8444)
	stream := func(addr netip.Addr, port uint16) *lab.Process {
		to := netip.AddrPortFrom(addr, port)
		p := w.AsAgent(w.Box, "tcp", "-hold", "10m", "-oneway", to.String())
		if !rig.Eventually(10*time.Second, func() bool { return w.Received(to) > 0 }) {
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
			rig.Must(t, err)
			if r.OK || r.Errno != "ECONNRESET" && r.Errno != "EHOSTUNREACH" && r.Errno != "EPIPE" {
				t.Errorf("%s: not ended by the revocation: %s", what, r)
			}
		case <-time.After(lab.Patience):
			t.Errorf("%s: outlives its revocation", what)
		}
	}
	lives := func(what string, p *lab.Process, addr string) {
		t.Helper()
		before := w.Received(netip.MustParseAddrPort(addr))
		if !rig.Eventually(10*time.Second, func() bool { return w.Received(netip.MustParseAddrPort(addr)) > before+2 }) {
			t.Errorf("%s: died with others: %s%s", what, p.Stdout(), p.Stderr())
		}
	}
	revoked4, revoked6 := stream(ok4, 8443), stream(ok6, 8443)
	shared, named2 := stream(ok4, 8445), stream(other4, 8443)
	plain, plain2 := stream(netip.MustParseAddr("45.30.9.9"), 8443), stream(netip.MustParseAddr("45.30.9.10"), 8443)
	w.Box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", "bash", "-c",
		fmt.Sprintf("exec 3<>/dev/tcp/%s/8444; exec cat <&3 >/dev/null", ok4)}})
	if !rig.Eventually(10*time.Second, func() bool { return pushed.Load() > 10 }) {
		t.Fatal("nothing is pushed")
	}
	w.Works("udp", "-from", "5000", rig.Target(ok4.String(), 4433))

	if r := w.SetPolicy("shared.test:8445\nok2.test:8443\n45.30.9.10:8443\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	w.Box.ForgetPackets()
	dies("the removed name", revoked4)
	dies("the removed name over IPv6", revoked6)
	dies("the removed address", plain)
	w.Blocked("udp", "-from", "5000", rig.Target(ok4.String(), 4433))
	w.Blocked("tcp", rig.Target(ok4.String(), 8443))
	w.Blocked("tcp", "45.30.9.9:8443")
	// What the far side goes on sending isn't even acknowledged.
	since := pushed.Load()
	if !rig.Eventually(10*time.Second, func() bool { return pushed.Load() > since+10 }) {
		t.Error("the far side could not go on: the stream was closed from inside")
	}
	gone := lab.Any(lab.ToAddr("45.30.9.9"), func(p *lab.Packet) bool { return p.Dst == ok4 && p.DstPort != 8445 }, lab.ToAddr(ok6.String()))
	w.Sealed(gone)
	lives("another name of the same address", shared, rig.Target(ok4.String(), 8445))
	lives("another name", named2, rig.Target(other4.String(), 8443))
	lives("another address", plain2, "45.30.9.10:8443")

	// A deny entry revokes as well, and the other family of the streams too.
	if r := w.SetPolicy("shared.test:8445\nok2.test:8443\n!ok2.test\n!shared.test\n45.30.9.10:8443\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	w.Box.ForgetPackets()
	dies("the denied name", named2)
	dies("the denied name of a shared address", shared)
	lives("another address", plain2, "45.30.9.10:8443")
	w.Sealed(gone, lab.ToAddr(other4.String()))
	w.Sealed(lab.ToAddr(ok4.String()))
}

// push has the internet send without end to whoever connects to a port, and
// counts.
func push(w *rig.World, port uint16) *atomic.Int64 {
	w.Helper()
	w.Lab.Claim("tcp", port)
	l, err := w.Lab.Internet.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", port))
	rig.Must(w.T, err)
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
