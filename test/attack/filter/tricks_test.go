package filter

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestMarksOpenNothing, rig.OverXtables)

func TestMarksOpenNothing(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{Caps: append(rig.RawCaps(), "NET_BIND_SERVICE")})
	open := w.Beside(lab.BoxOptions{Caps: append(rig.RawCaps(), "NET_BIND_SERVICE")})
	evil4, evil6 := rig.Named("evil.test")
	status, _ := w.Status()
	guard, _ := status["guard"].(map[string]any)
	uid, _ := guard["uid"].(float64)
	if uid == 0 || uid == lab.AgentUID {
		t.Fatalf("no guard's uid in %v", status)
	}

	// Marks and priorities say nothing, and the agent can't even set a mark.
	for _, mark := range []string{"1", "0x1337", "0xffffffff"} {
		opt := "1:36:" + mark // SO_MARK
		if p := w.Blocked("tcp", "-opt", opt, rig.Target(evil4.String(), 443)); p.Errno != "EPERM" {
			t.Errorf("SO_MARK: %s", p)
		}
		for _, a := range []netip.Addr{evil4, evil6} {
			refusedRoot(w, open, rig.Toward(a.String()), "tcp", "-opt", opt, rig.Target(a.String(), 443))
			refusedRoot(w, open, rig.Toward(a.String()), "udp", "-opt", opt, rig.Target(a.String(), 4433))
		}
	}
	refusedRoot(w, open, lab.ToAddr(evil4.String()), "tcp", "-opt", "1:12:6", "-opt", "0:1:184", rig.Target(evil4.String(), 443)) // SO_PRIORITY, IP_TOS

	// Uid 0 is nobody special, whatever it does.
	for _, args := range [][]string{
		{"tcp", rig.Target(evil4.String(), 443)}, {"tcp", rig.Target(evil6.String(), 8443)}, {"udp", rig.Target(evil4.String(), 4433)},
		{"ping", evil4.String()}, {"tcp", lab.Upstream4.String() + ":443"}, {"udp", lab.Upstream4.String() + ":853"},
		{"udp", "-from", "53", rig.Target(evil4.String(), 4433)}, {"http", "-insecure", "https://" + evil4.String() + "/"},
	} {
		if p := open.Poke(0, args...); !p.OK {
			t.Errorf("proves nothing: %v: %s", args, p)
		}
		if p := w.Box.Poke(0, args...); p.OK {
			t.Errorf("root got through: %v: %s", args, p)
		}
	}
	for _, args := range [][]string{{"dns", lab.Upstream4.String() + ":53", "evil.test", "A"}, {"dns", "-tcp", "1.1.1.1:53", "evil.test", "A"}, {"resolve", "evil.test"}} {
		if p := w.Box.Poke(0, args...); p.OK {
			t.Errorf("root was answered: %v: %s", args, p)
		}
	}
	w.Unasked("evil.test")

	// The guard's uid is out of the agent's reach, and opens nothing by itself.
	id := fmt.Sprint(uid)
	for _, op := range [][]string{
		{"setuid", id}, {"setgid", id}, {"as", id, "tcp", rig.Target(evil4.String(), 443)}, {"as", id, "udp", "-noreply", lab.Upstream4.String() + ":53"},
		{"setuid", "0"}, {"as", "0", "tcp", rig.Target(evil4.String(), 443)},
	} {
		w.Blocked(op...)
	}
	for _, to := range []string{rig.Target(evil4.String(), 443), rig.Target(evil6.String(), 443), lab.Upstream4.String() + ":443"} {
		if p := w.Box.Poke(uint32(uid), "tcp", to); p.OK {
			t.Errorf("the guard's uid reaches %s: %s", to, p)
		}
	}
	for _, args := range [][]string{{"dns", lab.Upstream4.String() + ":53", "evil.test", "A"}, {"dns", "-tcp", rig.Target(evil4.String(), 53), "evil.test", "A"}} {
		if p := w.Box.Poke(uint32(uid), args...); p.OK {
			t.Errorf("the guard's uid was answered: %v: %s", args, p)
		}
	}
	w.Unasked("evil.test")
	w.Sealed(rig.NotGuards)
}

var _ = rig.Also(TestBoundInterfaceOpensNothing, rig.OverXtables)

// TestBoundInterfaceOpensNothing: a socket that is bound to the interface must not put
// loopback's addresses, or redirected ones, on the wire.
func TestBoundInterfaceOpensNothing(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	open := w.Beside(lab.BoxOptions{})
	index := func(b *lab.Box) string {
		r := b.Exec(lab.Cmd{Args: []string{"cat", "/sys/class/net/eth0/ifindex"}})
		return strings.TrimSpace(r.Stdout)
	}
	if index(w.Box) != index(open) || index(open) == "" {
		t.Fatalf("eth0 has index %q and %q", index(w.Box), index(open))
	}
	bind := "1:62:" + index(open) // SO_BINDTOIFINDEX
	w.Refused(open, lab.ToAddr("127.0.0.0/8"), "udp", "-noreply", "-opt", bind, "127.0.0.1:4433")
	w.Refused(open, lab.ToAddr("127.0.0.0/8"), "udp", "-noreply", "-opt", bind, "127.0.0.53:4433")
	evil4, evil6 := rig.Named("evil.test")
	for _, to := range []string{rig.Target(evil4.String(), 4433), rig.Target(evil6.String(), 4433)} {
		w.Refused(open, rig.Toward(netip.MustParseAddrPort(to).Addr().String()), "udp", "-opt", bind, to)
	}
	// Port 53 is redirected; a socket may not take it to the wire after that.
	for _, to := range []string{rig.Target(evil4.String(), 53), rig.Target(evil6.String(), 53), "127.0.0.1:53", "127.0.0.11:53"} {
		w.Poke("udp", "-noreply", "-opt", bind, to)
		w.Poke("tcp", "-timeout", "300ms", "-opt", bind, to)
	}
	// IP_UNICAST_IF takes the index in network order.
	var n [4]byte
	var i uint32
	if _, err := fmt.Sscan(index(open), &i); err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint32(n[:], i)
	w.Poke("udp", "-noreply", "-opt", fmt.Sprintf("0:50:%d", binary.NativeEndian.Uint32(n[:])), "127.0.0.1:4433")
	w.Sealed(rig.NotGuards)
}

var _ = rig.Also(TestForeignSourceOpensNothing, rig.OverXtables)

// TestForeignSourceOpensNothing: over IPv6 a socket may have any address (IPV6_FREEBIND). If
// a packet passes as coming from outside, then what is sent there is a reply.
func TestForeignSourceOpensNothing(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist+"ok2.test:4433/udp\n", lab.BoxOptions{})
	open := w.Beside(lab.BoxOptions{})
	w.Works("resolve", "ok2.test")
	_, evil := rig.Named("evil.test")
	_, ok2 := rig.Named("ok2.test")
	foreign := []string{"udp", "-noreply", "-opt", "41:78:1", "-source"}
	for _, b := range []*lab.Box{w.Box, open} {
		poke := w.Poke
		if b == open {
			poke = func(args ...string) lab.Poke { return b.Poke(lab.AgentUID, args...) }
		}
		own := b.Addr6().String()
		for i, args := range [][]string{
			append(foreign, rig.Target(evil.String(), 4001), rig.Target(own, 6001)),   // from outside to itself, over loopback
			append(foreign, rig.Target(evil.String(), 4002), rig.Target("::1", 6002)), // and to loopback's address
			append(foreign, rig.Target(evil.String(), 4003), rig.Target(ok2.String(), 4433)),
			append(foreign, rig.Target(ok2.String(), 4433), rig.Target(evil.String(), 4003)),
			{"udp", "-from", "6001", rig.Target(evil.String(), 4001)},
			{"udp", "-from", "6002", rig.Target(evil.String(), 4002)},
		} {
			if p := poke(args...); p.OK != (b == open) {
				t.Errorf("open box: %t: %v (%d): %s", b == open, args, i, p)
			}
		}
	}
	w.Sealed(rig.NotGuards)
	w.Works("udp", rig.Target(ok2.String(), 4433))
}

var _ = rig.Also(TestRoutingHeaderOpensNothing, rig.Everywhere)

// TestRoutingHeaderOpensNothing: over IPv6 a socket may add a routing header, by which an
// allowed host is asked to send the packet on to another.
func TestRoutingHeaderOpensNothing(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist+"ok2.test:4433/udp\n", lab.BoxOptions{})
	open := w.Beside(lab.BoxOptions{})
	for _, name := range []string{"ok.test", "ok2.test"} {
		w.Works("resolve", name)
	}
	_, evil := rig.Named("evil.test")
	_, ok := rig.Named("ok.test")
	_, ok2 := rig.Named("ok2.test")
	routed := func(p *lab.Packet) bool { return strings.Contains(string(p.Raw), string(evil.AsSlice())) }
	// A segment routing header (RFC 8754): the first segment stands last.
	via := func(hop netip.Addr) string {
		return fmt.Sprintf("41:57:hex0004040101000000%x%x", evil.AsSlice(), hop.AsSlice())
	}
	w.Refused(open, routed, "udp", "-noreply", "-opt", via(ok2), rig.Target(evil.String(), 4433))
	for _, b := range []*lab.Box{open, w.Box} { // no server speaks this: the connection itself fails in both
		for _, hop := range []netip.Addr{ok, netip.IPv6Loopback(), b.Addr6()} {
			args := []string{"tcp", "-timeout", "300ms", "-opt", via(hop), rig.Target(evil.String(), 443)}
			if b == open {
				b.Poke(lab.AgentUID, args...)
			} else {
				w.Blocked(args...)
			}
		}
		if n := len(b.Packets(routed, lab.ToAddr(ok.String()))); (n > 0) != (b == open) {
			t.Errorf("open box: %t: %d packets with a route left the box", b == open, n)
		}
	}
	// IPv4's source routes.
	evil4, _ := rig.Named("evil.test")
	ok4, _ := rig.Named("ok.test")
	for _, kind := range []string{"83", "89"} { // loose and strict
		route := fmt.Sprintf("0:4:hex%s0704%x00", kind, ok4.AsSlice())
		w.Blocked("tcp", "-timeout", "300ms", "-opt", route, rig.Target(evil4.String(), 443))
	}
	w.Sealed(rig.NotGuards)
	w.Works("udp", rig.Target(ok2.String(), 4433))
}
