package firewall

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	labnet "github.com/agent-init/agent-init/internal/netns"
)

// E26: TCP to what is leased to be looked into comes to the gate, whoever sends
// it; only the guard goes on. Addresses that are allowed as such, and other
// leases, are no business of the gate's.
func TestKernelGate(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	for _, port := range []uint16{80, 443, 8443} {
		l.serve(port)
	}
	echo(t, netip.MustParseAddrPort("127.0.0.1:4080"), "gate ")
	echo(t, netip.MustParseAddrPort("[::1]:6080"), "gate ")
	f := open(t, Options{})
	c := Config{
		GuardUID: guardUID, GuardGID: guardGID, DropGroup: group, GatePort4: 4080, GatePort6: 6080,
		Allow: []Entry{{Prefix: single(other4), Proto: unix.IPPROTO_TCP, Port: 443}, {Prefix: single(other6), Proto: unix.IPPROTO_TCP, Port: 443}},
	}
	apply(t, f, c)
	for _, far := range []netip.Addr{far4, far6} {
		must(t, f.Lease(ctx, leasedTo(Gated, append(tcpLeases(443, far), tcpLeases(80, far)...)...)))
		must(t, f.Lease(ctx, append(tcpLeases(8443, far), leaseOf(far, unix.IPPROTO_UDP, 443, time.Minute))))
		for _, port := range []uint16{80, 443} {
			for _, uid := range []int{0, agentUID} {
				if got, err := ask("tcp", at(far, port), uid, "hello"); got != "gate hello" {
					t.Errorf("uid %d, %v:%d: got %q, %v; want the gate", uid, far, port, got, err)
				}
			}
			reached(t, "tcp", at(far, port), guardUID)
		}
		reached(t, "tcp", at(far, 8443), agentUID)
		reached(t, "udp", at(far, 443), agentUID)
	}
	for _, other := range []netip.Addr{other4, other6} {
		reached(t, "tcp", at(other, 443), agentUID)
		refused(t, "tcp", at(other, 80), agentUID) // not leased: not even the gate
	}
	must(t, f.Verify(ctx))

	// What is left of a flow of the guard's is no way out: here its socket is
	// gone, and connection tracking believes that it lives.
	t.Run("left flow", func(t *testing.T) {
		port := abandonedFlow(t, at(far4, 443))
		l.forget()
		err := from(port, at(far4, 443), agentUID)
		for _, p := range l.wire.arrived("") {
			if p.dst == at(far4, 443) {
				t.Errorf("arrived from port %d (%v)", p.src.Port(), err)
			}
		}
	})

	// Without a listener, it is refused and not opened.
	c.GatePort4, c.GatePort6 = 0, 0
	apply(t, f, c)
	must(t, f.FlushConntrack(ctx))
	for _, far := range []netip.Addr{far4, far6} {
		refused(t, "tcp", at(far, 443), agentUID)
		refused(t, "tcp", at(far, 443), 0)
		reached(t, "tcp", at(far, 8443), agentUID)
	}
}

// abandonedFlow connects as the guard and makes the socket vanish without a
// word (TCP_REPAIR, tcp(7)). It returns the port that the socket had.
func abandonedFlow(t *testing.T, dst netip.AddrPort) int {
	t.Helper()
	var fd int
	var err error
	as(guardUID, func() {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err == nil {
			err = unix.Connect(fd, &unix.SockaddrInet4{Addr: dst.Addr().As4(), Port: int(dst.Port())})
		}
	})
	must(t, err)
	defer unix.Close(fd)
	name, err := unix.Getsockname(fd)
	must(t, err)
	must(t, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, 1))
	return name.(*unix.SockaddrInet4).Port
}

// from connects from a port as a uid.
func from(port int, dst netip.AddrPort, uid int) (err error) {
	reuse := func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
	}
	d := net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: near4.AsSlice(), Port: port}, Control: reuse}
	as(uid, func() {
		var c net.Conn
		if c, err = d.Dial("tcp4", dst.String()); err == nil {
			c.Close()
		}
	})
	return err
}

// as runs f on a thread of its own that has a uid, and ends with f.
func as(uid int, f func()) {
	err := labnet.OnThread(func() error {
		if err := become(uid); err != nil {
			return err
		}
		f()
		return nil
	})
	if err != nil {
		panic(err)
	}
}
