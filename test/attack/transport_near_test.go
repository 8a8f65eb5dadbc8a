package attack

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// nearPorts are those that machines offer to their neighbours: the reserved
// ones but DNS's, which the guard answers for, and Docker's and VNC's.
const nearPorts = "1-52,54-1024,2375,2376,5900,10250,11435"

// count returns how many ports a scan found.
func count(p lab.Poke) int {
	list, _ := p.Detail["open"].([]any)
	return len(list)
}

func TestLabE35Gateway(t *testing.T) {
	w := confine(t, allowlist+"host.docker.internal:11434\n", lab.BoxOptions{Hosts: []string{"172.30.0.1 host.docker.internal"}})
	open := w.beside(lab.BoxOptions{})
	ula := func(b *lab.Box) string { return b.ULA().Prev().String() }
	for _, tt := range []struct{ confined, open string }{
		{w.box.Gateway4().String(), open.Gateway4().String()}, {w.box.Gateway6().String(), open.Gateway6().String()},
		{ula(w.box), ula(open)}, {"fe80::1%eth0", "fe80::1%eth0"},
	} {
		for _, udp := range []string{"-udp=false", "-udp"} {
			if p := w.blocked("scan", udp, "-timeout", "300ms", tt.confined, nearPorts); p.Detail["n"] != float64(1028) {
				t.Errorf("not all ports were tried: %s", p)
			}
			if n := count(open.Poke(lab.AgentUID, "scan", udp, "-timeout", "5s", tt.open, nearPorts)); n != 1028 {
				t.Errorf("proves nothing: the scan of %s finds %d ports without confinement", tt.open, n)
			}
		}
		w.blocked("ping", "-timeout", "300ms", tt.confined)
		// Its port 53 is the guard's, who asks only its own servers.
		w.blocked("dns", target(tt.confined, 53), "evil.test", "A")
		w.blocked("dns", "-tcp", target(tt.confined, 53), "evil.test", "A")
	}
	w.unasked("evil.test")
	w.sealed(notGuards)
	// By its name it is no more open, but for the port that the policy names.
	w.blocked("tcp", "host.docker.internal:2375")
	w.works("tcp", "-send", "x", "host.docker.internal:11434")
	w.sealed(notGuards, lab.Not(lab.ToPort(unix.IPPROTO_TCP, 11434)))
}

func TestLabE36Neighbours(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{})
	open := w.beside(lab.BoxOptions{})
	for _, b := range []*lab.Box{open, w.box} {
		poke := w.poke
		if b == open {
			poke = func(args ...string) lab.Poke { return b.Poke(lab.AgentUID, args...) }
		}
		other := w.box
		if b == w.box {
			other = open
		}
		for _, a := range []netip.Addr{b.Neighbor4(), b.Neighbor6(), other.Addr4(), other.Addr6()} {
			for _, args := range [][]string{
				{"tcp", "-timeout", "500ms", target(a.String(), 5432)}, {"udp", "-timeout", "500ms", target(a.String(), 4433)},
				{"ping", "-timeout", "500ms", a.String()},
			} {
				b.ForgetPackets()
				p := poke(args...)
				if left := len(b.Packets(toward(a.String()))) > 0; left != (b == open) || b == w.box && p.OK {
					t.Errorf("open box: %t: %v: left the box: %t: %s", b == open, args, left, p)
				}
			}
		}
	}
	// Not even a question for the address on the link: who asks for whom is a
	// message, too. These addresses nobody has been asked for yet.
	for _, b := range []*lab.Box{open, w.box} {
		args4, args6 := []string{"udp", "-noreply", nobody4(b) + ":4433"}, []string{"udp", "-noreply", "[" + nobody6(b) + "]:4433"}
		for _, args := range [][]string{args4, args6} {
			if b == open {
				b.Poke(lab.AgentUID, args...)
			} else {
				w.blocked(args...)
			}
		}
		asked := func(a string) lab.Filter {
			raw := string(netip.MustParseAddr(a).AsSlice())
			return func(p *lab.Packet) bool {
				return (p.EtherType == unix.ETH_P_ARP || p.ICMPType == 135) && strings.Contains(string(p.Raw), raw)
			}
		}
		for _, a := range []string{nobody4(b), nobody6(b)} {
			if n := len(b.Packets(asked(a))); (n > 0) != (b == open) {
				t.Errorf("open box: %t: %d questions on the link for %s", b == open, n, a)
			}
		}
	}
}

func nobody4(b *lab.Box) string {
	a := b.Addr4().As4()
	a[3] = 77
	return netip.AddrFrom4(a).String()
}

func nobody6(b *lab.Box) string {
	a := b.Addr6().As16()
	a[15] = 0x77
	return netip.AddrFrom16(a).String()
}

// metadata are the addresses of clouds' metadata services, with some of the
// forms that IPv6 has for them.
func metadata() []string {
	return []string{
		"169.254.169.254", "169.254.170.2", "169.254.170.23", "168.63.129.16", "100.100.100.200", "192.0.0.192",
		"fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254",
		"64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "::169.254.169.254", "::ffff:0:169.254.169.254", "64:ff9b::6464:64c8",
	}
}

func TestLabE37Metadata(t *testing.T) {
	// Blocks around them may be in the policy, and names that mean them.
	const around = allowlist + `
168.63.129.0/24
100.100.100.0/24
[fd00:ec2::]/64
[fd20:ce::]/64
metadata.google.internal private
meta6.test private
hosted.test private
`
	w := confine(t, around, lab.BoxOptions{Hosts: []string{"169.254.169.254 hosted.test", "168.63.129.16 hosted.test"}})
	open := w.beside(lab.BoxOptions{})
	w.lab.DNS.SetAddrs("metadata.google.internal", "169.254.169.254", "168.63.129.16")
	w.lab.DNS.SetAddrs("meta6.test", "fd00:ec2::254", "64:ff9b::a9fe:a9fe", "::ffff:169.254.169.254")
	for _, name := range []string{"metadata.google.internal", "meta6.test"} {
		w.blocked("dns", lab.Upstream4.String()+":53", name, "A")
		w.blocked("dns", lab.Upstream4.String()+":53", name, "AAAA")
	}
	w.blocked("http", "http://metadata.google.internal/computeMetadata/v1/")
	w.blocked("http", "http://hosted.test/latest/meta-data/")
	for _, a := range metadata() {
		for _, args := range [][]string{
			{"tcp", target(a, 80)}, {"tcp", target(a, 443)}, {"udp", "-noreply", target(a, 80)}, {"ping", "-timeout", "500ms", a},
		} {
			w.refused(open, toward(a), args...)
		}
		r := w.root("poke", "tcp", target(a, 80))
		if p, err := lab.ParsePoke(r.Stdout); err != nil || p.OK {
			t.Errorf("%s as root: %s", a, r)
		}
	}
	w.sealed(notGuards)
	// The blocks themselves are open.
	w.works("tcp", "168.63.129.17:443")
	w.works("tcp", "[fd00:ec2::255]:443")

	// No entry may name them, and a policy that has one is not taken.
	for _, a := range append(metadata(), "169.254.0.0/16", "169.254.1.1", "224.0.0.251", "255.255.255.255", "0.0.0.0", "ff02::fb") {
		if strings.Contains(a, ":") {
			a = "[" + a + "]"
		}
		for _, entry := range []string{a, a + " private"} {
			if r := w.setPolicy(allowlist + entry + "\n"); r.Code != 78 {
				t.Errorf("policy with %q: %s", entry, r)
			}
		}
	}
	w.blocked("tcp", "169.254.169.254:80")
	w.works("tcp", "168.63.129.17:443") // the old one is in force
}

// TestLabE37Start: neither does a container start with one.
func TestLabE37Start(t *testing.T) {
	w := start(t, allowlist+"169.254.169.254:80 private\n", lab.BoxOptions{}, "agent-init", "run", "--", "poke", "tcp", "169.254.169.254:80")
	if r := w.agent.Wait(0); r.Code != 78 || !strings.Contains(r.Stderr, "169.254.169.254") {
		t.Errorf("got %s", r)
	}
	w.sealed()
}

func TestLabE39Marks(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{Caps: append(rawCaps(), "NET_BIND_SERVICE")})
	open := w.beside(lab.BoxOptions{Caps: append(rawCaps(), "NET_BIND_SERVICE")})
	evil4, evil6 := named("evil.test")
	status, _ := w.status()
	guard, _ := status["guard"].(map[string]any)
	uid, _ := guard["uid"].(float64)
	if uid == 0 || uid == lab.AgentUID {
		t.Fatalf("no guard's uid in %v", status)
	}

	// Marks and priorities say nothing, and the agent can't even set a mark.
	for _, mark := range []string{"1", "0x1337", "0xffffffff"} {
		opt := "1:36:" + mark // SO_MARK
		if p := w.blocked("tcp", "-opt", opt, target(evil4.String(), 443)); p.Errno != "EPERM" {
			t.Errorf("SO_MARK: %s", p)
		}
		for _, a := range []netip.Addr{evil4, evil6} {
			w.refusedRoot(open, toward(a.String()), "tcp", "-opt", opt, target(a.String(), 443))
			w.refusedRoot(open, toward(a.String()), "udp", "-opt", opt, target(a.String(), 4433))
		}
	}
	w.refusedRoot(open, lab.ToAddr(evil4.String()), "tcp", "-opt", "1:12:6", "-opt", "0:1:184", target(evil4.String(), 443)) // SO_PRIORITY, IP_TOS

	// Uid 0 is nobody special, whatever it does.
	for _, args := range [][]string{
		{"tcp", target(evil4.String(), 443)}, {"tcp", target(evil6.String(), 8443)}, {"udp", target(evil4.String(), 4433)},
		{"ping", evil4.String()}, {"tcp", lab.Upstream4.String() + ":443"}, {"udp", lab.Upstream4.String() + ":853"},
		{"udp", "-from", "53", target(evil4.String(), 4433)}, {"http", "-insecure", "https://" + evil4.String() + "/"},
	} {
		if p := open.Poke(0, args...); !p.OK {
			t.Errorf("proves nothing: %v: %s", args, p)
		}
		if p := w.box.Poke(0, args...); p.OK {
			t.Errorf("root got through: %v: %s", args, p)
		}
	}
	for _, args := range [][]string{{"dns", lab.Upstream4.String() + ":53", "evil.test", "A"}, {"dns", "-tcp", "1.1.1.1:53", "evil.test", "A"}, {"resolve", "evil.test"}} {
		if p := w.box.Poke(0, args...); p.OK {
			t.Errorf("root was answered: %v: %s", args, p)
		}
	}
	w.unasked("evil.test")

	// The guard's uid is out of the agent's reach, and opens nothing but the
	// upstream servers.
	id := fmt.Sprint(uid)
	for _, op := range [][]string{
		{"setuid", id}, {"setgid", id}, {"as", id, "tcp", target(evil4.String(), 443)}, {"as", id, "udp", "-noreply", lab.Upstream4.String() + ":53"},
		{"setuid", "0"}, {"as", "0", "tcp", target(evil4.String(), 443)},
	} {
		w.blocked(op...)
	}
	for _, to := range []string{target(evil4.String(), 443), target(evil6.String(), 443), target(evil4.String(), 53), lab.Upstream4.String() + ":443"} {
		if p := w.box.Poke(uint32(uid), "tcp", to); p.OK {
			t.Errorf("the guard's uid reaches %s: %s", to, p)
		}
	}
	w.sealed(notGuards)
}

// TestLabE39Interface: a socket that is bound to the interface must not put
// loopback's addresses, or redirected ones, on the wire.
func TestLabE39Interface(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{})
	open := w.beside(lab.BoxOptions{})
	index := func(b *lab.Box) string {
		r := b.Exec(lab.Cmd{Args: []string{"cat", "/sys/class/net/eth0/ifindex"}})
		return strings.TrimSpace(r.Stdout)
	}
	if index(w.box) != index(open) || index(open) == "" {
		t.Fatalf("eth0 has index %q and %q", index(w.box), index(open))
	}
	bind := "1:62:" + index(open) // SO_BINDTOIFINDEX
	w.refused(open, lab.ToAddr("127.0.0.0/8"), "udp", "-noreply", "-opt", bind, "127.0.0.1:4433")
	w.refused(open, lab.ToAddr("127.0.0.0/8"), "udp", "-noreply", "-opt", bind, "127.0.0.53:4433")
	evil4, evil6 := named("evil.test")
	for _, to := range []string{target(evil4.String(), 4433), target(evil6.String(), 4433)} {
		w.refused(open, toward(netip.MustParseAddrPort(to).Addr().String()), "udp", "-opt", bind, to)
	}
	// Port 53 is redirected; a socket may not take it to the wire after that.
	for _, to := range []string{target(evil4.String(), 53), target(evil6.String(), 53), "127.0.0.1:53", "127.0.0.11:53"} {
		w.poke("udp", "-noreply", "-opt", bind, to)
		w.poke("tcp", "-timeout", "300ms", "-opt", bind, to)
	}
	// IP_UNICAST_IF takes the index in network order.
	var n [4]byte
	var i uint32
	if _, err := fmt.Sscan(index(open), &i); err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint32(n[:], i)
	w.poke("udp", "-noreply", "-opt", fmt.Sprintf("0:50:%d", binary.NativeEndian.Uint32(n[:])), "127.0.0.1:4433")
	w.sealed(notGuards)
}

// TestLabE39Source: over IPv6 a socket may have any address (IPV6_FREEBIND). If
// a packet passes as coming from outside, then what is sent there is a reply.
func TestLabE39Source(t *testing.T) {
	w := confine(t, allowlist+"ok2.test:4433/udp\n", lab.BoxOptions{})
	open := w.beside(lab.BoxOptions{})
	w.works("resolve", "ok2.test")
	_, evil := named("evil.test")
	_, ok2 := named("ok2.test")
	foreign := []string{"udp", "-noreply", "-opt", "41:78:1", "-source"}
	for _, b := range []*lab.Box{w.box, open} {
		poke := w.poke
		if b == open {
			poke = func(args ...string) lab.Poke { return b.Poke(lab.AgentUID, args...) }
		}
		own := b.Addr6().String()
		for i, args := range [][]string{
			append(foreign, target(evil.String(), 4001), target(own, 6001)),   // from outside to itself, over loopback
			append(foreign, target(evil.String(), 4002), target("::1", 6002)), // and to loopback's address
			append(foreign, target(evil.String(), 4003), target(ok2.String(), 4433)),
			append(foreign, target(ok2.String(), 4433), target(evil.String(), 4003)),
			{"udp", "-from", "6001", target(evil.String(), 4001)},
			{"udp", "-from", "6002", target(evil.String(), 4002)},
		} {
			if p := poke(args...); p.OK != (b == open) {
				t.Errorf("open box: %t: %v (%d): %s", b == open, args, i, p)
			}
		}
	}
	w.sealed(notGuards)
	w.works("udp", target(ok2.String(), 4433))
}

// TestLabE39Route: over IPv6 a socket may add a routing header, by which an
// allowed host is asked to send the packet on to another.
func TestLabE39Route(t *testing.T) {
	w := confine(t, allowlist+"ok2.test:4433/udp\n", lab.BoxOptions{})
	open := w.beside(lab.BoxOptions{})
	for _, name := range []string{"ok.test", "ok2.test"} {
		w.works("resolve", name)
	}
	_, evil := named("evil.test")
	_, ok := named("ok.test")
	_, ok2 := named("ok2.test")
	routed := func(p *lab.Packet) bool { return strings.Contains(string(p.Raw), string(evil.AsSlice())) }
	// A segment routing header (RFC 8754): the first segment stands last.
	via := func(hop netip.Addr) string {
		return fmt.Sprintf("41:57:hex0004040101000000%x%x", evil.AsSlice(), hop.AsSlice())
	}
	w.refused(open, routed, "udp", "-noreply", "-opt", via(ok2), target(evil.String(), 4433))
	for _, b := range []*lab.Box{open, w.box} { // no server speaks this: the connection itself fails in both
		for _, hop := range []netip.Addr{ok, netip.IPv6Loopback(), b.Addr6()} {
			args := []string{"tcp", "-timeout", "300ms", "-opt", via(hop), target(evil.String(), 443)}
			if b == open {
				b.Poke(lab.AgentUID, args...)
			} else {
				w.blocked(args...)
			}
		}
		if n := len(b.Packets(routed, lab.ToAddr(ok.String()))); (n > 0) != (b == open) {
			t.Errorf("open box: %t: %d packets with a route left the box", b == open, n)
		}
	}
	// IPv4's source routes.
	evil4, _ := named("evil.test")
	ok4, _ := named("ok.test")
	for _, kind := range []string{"83", "89"} { // loose and strict
		route := fmt.Sprintf("0:4:hex%s0704%x00", kind, ok4.AsSlice())
		w.blocked("tcp", "-timeout", "300ms", "-opt", route, target(evil4.String(), 443))
	}
	w.sealed(notGuards)
	w.works("udp", target(ok2.String(), 4433))
}
