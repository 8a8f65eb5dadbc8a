package firewall

import (
	"context"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// E21, E23, E28–E32, E38, E69: sealed, nothing of any kind gets out or in, for
// any uid, and loopback works.
func TestKernelSeal(t *testing.T) {
	if !onBackends(t) {
		return
	}
	l := newLab(t)
	l.serve(443)
	echo(t, netip.MustParseAddrPort("127.0.0.1:8000"), "")
	echo(t, netip.MustParseAddrPort("[::1]:8000"), "")
	echo(t, at(near4, 8000), "")
	for _, a := range []netip.Addr{far4, far6, other4, other6} {
		must(t, reach("tcp", at(a, 443), 77)) // so that a refusal below means something
		must(t, reach("udp", at(a, 443), 77))
	}
	f := open(t, Options{})
	must(t, f.Seal(context.Background()))
	must(t, f.FlushConntrack(context.Background()))
	for _, uid := range []int{0, guardUID, agentUID} {
		for _, a := range []netip.Addr{far4, far6, other4, other6} {
			for _, port := range []uint16{22, 53, 443} {
				refused(t, "tcp", at(a, port), uid)
				refused(t, "udp", at(a, port), uid)
			}
		}
		for _, ap := range []string{"127.0.0.1:8000", "[::1]:8000", "192.0.2.2:8000"} {
			reached(t, "tcp", netip.MustParseAddrPort(ap), uid)
			reached(t, "udp", netip.MustParseAddrPort(ap), uid)
		}
	}
	l.nowhere("hello from 0")
	l.nowhere(mark(agentUID))
	l.nowhere(mark(guardUID))
	everyProtocol(t)
	l.nowhere("tunnel")

	// E31: datagrams from port 53 of the outside don't come in.
	pc, err := net.ListenPacket("udp", at(near4, 5000).String())
	must(t, err)
	defer pc.Close()
	l.onPeer(func() {
		c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(at(far4, 53)), net.UDPAddrFromAddrPort(at(near4, 5000)))
		must(t, err)
		c.Write([]byte("in"))
		c.Close()
		if c, err := net.DialTimeout("tcp", at(near4, 8000).String(), 300*time.Millisecond); err == nil {
			c.Close()
			t.Error("a connection from outside was accepted")
		}
	})
	pc.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, from, err := pc.ReadFrom(make([]byte, 10)); err == nil {
		t.Errorf("%d bytes from %v came in", n, from)
	}
}

// everyProtocol sends "tunnel" by root's raw sockets in ways that aren't TCP
// or UDP, and to addresses that aren't one machine's. Refusals are fine.
func everyProtocol(t *testing.T) {
	t.Helper()
	v4 := []netip.Addr{far4, other4, netip.MustParseAddr("224.0.0.251"), netip.MustParseAddr("169.254.169.254")}
	v6 := []netip.Addr{far6, other6, netip.MustParseAddr("ff02::fb"), netip.MustParseAddr("fd00:ec2::254")}
	for _, proto := range []int{1, 2, 4, 33, 41, 47, 50, 58, 132, 136, 253} {
		for _, a := range append(v4, v6...) {
			// An ICMP echo, or an ICMPv6 neighbour solicitation with its
			// message where an option would be (E29).
			head := []byte{8, 0, 0, 0, 0, 1, 0, 1}
			if proto == unix.IPPROTO_ICMPV6 {
				head = append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, a.AsSlice()...)
			}
			raw(t, proto, a, append(head, "tunnel"...))
		}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1))
	must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, 1)) // E39
	for _, a := range []string{"255.255.255.255", "192.0.2.255", "224.0.0.251"} {
		unix.Sendto(fd, []byte("tunnel"), 0, &unix.SockaddrInet4{Addr: netip.MustParseAddr(a).As4(), Port: 5353})
	}
	// E40: more than one cable's packet, so in fragments.
	unix.Sendto(fd, append(make([]byte, 4000), "tunnel"...), 0, &unix.SockaddrInet4{Addr: far4.As4(), Port: 443})
}

// A socket bound to the cable could put what is addressed to loopback on the
// wire, for a neighbour to take.
func TestKernelLoopbackStaysInside(t *testing.T) {
	if !onBackends(t) {
		return
	}
	l := newLab(t)
	echo(t, netip.MustParseAddrPort("127.0.0.1:4053"), "")
	f := open(t, Options{})
	send := func(to string, network string) {
		d := net.Dialer{Timeout: 200 * time.Millisecond, Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { must(t, unix.BindToDevice(int(fd), "eth0")) })
		}}
		if c, err := d.Dial(network, to); err == nil {
			c.SetDeadline(time.Now().Add(100 * time.Millisecond))
			ping(c, "bound")
			c.Close()
		}
	}
	must(t, os.WriteFile("/proc/sys/net/ipv4/conf/all/route_localnet", []byte("1"), 0))
	send("127.0.0.1:9999", "udp")
	eventually(t, "loopback on the wire without rules", func() bool { return len(l.wire.arrived("bound")) > 0 })
	seen := len(l.wire.arrived("bound"))

	apply(t, f, Config{DNSPort4: 4053})
	for _, network := range []string{"udp", "tcp"} {
		for _, to := range []string{"127.0.0.1:9999", "127.0.0.1:4053", "127.0.0.1:53", "198.51.100.7:53", "[::1]:9999"} {
			send(to, network)
		}
	}
	l.settle()
	for _, p := range l.wire.arrived("")[:] {
		if p.dst.Addr().IsLoopback() && p.dst.Port() != 9999 {
			t.Errorf("on the wire: protocol %d to %v", p.proto, p.dst)
		}
	}
	if n := len(l.wire.arrived("bound")); n != seen {
		t.Errorf("%d packets to loopback on the wire", n-seen)
	}
}

// E60, E72: a table that is closed is kept; anything else is replaced.
func TestKernelSealAgain(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	l.serve(443)
	f := open(t, Options{})
	apply(t, f, Config{Allow: []Entry{{Prefix: single(far4), Proto: unix.IPPROTO_TCP, Port: 443}}})
	reached(t, "tcp", at(far4, 443), agentUID)
	must(t, f.Seal(ctx))
	reached(t, "tcp", at(far4, 443), agentUID) // as closed as it was
	undo := []func(){
		func() { must(t, nftScript(t, "add chain inet agent-init output { policy accept; }")) },
		func() { must(t, nftScript(t, "delete table inet agent-init")) },
	}
	if backendInUse() != "nftables" {
		undo = []func(){
			func() { iptables(t, plan.IPv4, "-P", "OUTPUT", "ACCEPT") },
			func() { iptables(t, plan.IPv6, "-P", "FORWARD", "ACCEPT") },
			func() { iptables(t, plan.IPv4, "-I", "OUTPUT", "-j", "ACCEPT") },
			func() { iptables(t, plan.IPv4, "-D", "agent-init-output", lastRule(t, plan.IPv4, "agent-init-output")) },
			func() {
				iptables(t, plan.IPv4, "-F")
				iptables(t, plan.IPv4, "-X")
				iptables(t, plan.IPv4, "-P", "OUTPUT", "ACCEPT")
			},
		}
	}
	for _, change := range undo {
		apply(t, f, Config{Allow: []Entry{{Prefix: single(far4), Proto: unix.IPPROTO_TCP, Port: 443}}})
		change()
		must(t, f.Seal(ctx))
		refused(t, "tcp", at(far4, 443), agentUID)
	}
}
