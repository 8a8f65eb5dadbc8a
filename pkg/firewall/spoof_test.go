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

// sendFrom sends a datagram as the agent, from an address that need not be its
// own.
func sendFrom(src, dst netip.AddrPort, msg string) error { return sendFromAs(agentUID, src, dst, msg) }

func sendFromAs(uid int, src, dst netip.AddrPort, msg string) (err error) {
	free := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1) }); e != nil {
			return e
		}
		return err
	}}
	return labnet.OnThread(func() error {
		if err := become(uid); err != nil {
			return err
		}
		c, err := free.ListenPacket(context.Background(), "udp", src.String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.WriteTo([]byte(msg), net.UDPAddrFromAddrPort(dst))
		return err
	})
}

// Nobody makes a flow look as if it had come from outside, which would be a way
// out: what is sent back along it is a reply.
func TestKernelForgedSource(t *testing.T) {
	if !onBackends(t) {
		return
	}
	l := newLab(t)
	l.serve(53)
	echo(t, netip.MustParseAddrPort("127.0.0.1:4053"), "guard ")
	echo(t, netip.MustParseAddrPort("[::1]:6053"), "guard ")
	const order = "an order"
	forge := func(refused bool) {
		t.Helper()
		for _, way := range []struct {
			name                string
			forged, to, replier netip.AddrPort
		}{
			{"over loopback", at(other6, 4443), at(near6, 7000), at(near6, 7000)},
			{"from ::1", at(other6, 4443), at(netip.IPv6Loopback(), 7001), at(netip.IPv6Loopback(), 7001)},
			{"at a leased address", at(other6, 9999), at(far6, 4444), at(far6, 4444)},
			{"at an allowed address", at(other6, 9998), at(far6, 4445), at(far6, 4445)},
			{"by the guard", at(other6, 4443), at(far6, 53), netip.AddrPort{}},
			{"over loopback, IPv4", at(other4, 4443), at(near4, 7000), at(near4, 7000)},
		} {
			err := sendFrom(way.forged, way.to, order)
			if forged := way.forged.Addr().Is6(); !refused && forged && err != nil {
				t.Errorf("%s: this is no attack: %v", way.name, err)
			}
			if way.replier.IsValid() {
				err = sendFrom(way.replier, way.forged, order)
			}
			if refused && err == nil {
				t.Errorf("%s: sent to %v", way.name, way.forged)
			}
		}
	}
	forge(false)
	l.settle()
	if len(l.wire.arrived(order)) == 0 {
		t.Error("without rules, nothing arrives either")
	}
	l.forget()
	f := open(t, Options{})
	must(t, f.Seal(context.Background()))
	must(t, f.FlushConntrack(context.Background()))
	forge(true) // nor are flows prepared for what is open later
	apply(t, f, Config{DNSPort4: 4053, DNSPort6: 6053, DropGroup: group, Allow: []Entry{{Prefix: single(far6), Proto: unix.IPPROTO_UDP, Port: 4445}}},
		leaseOf(far6, unix.IPPROTO_UDP, 4444, time.Hour))
	forge(true)
	l.nowhere(order)
}
