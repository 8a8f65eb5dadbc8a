package filter

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// nearPorts are those that machines offer to their neighbours: the reserved
// ones but DNS's, which the guard answers for, and Docker's and VNC's.
const nearPorts = "1-52,54-1024,2375,2376,5900,10250,11435"

// count returns how many ports a scan found.
func count(p lab.Poke) int {
	list, _ := p.Detail["open"].([]any)
	return len(list)
}

var _ = rig.Also(TestEnginesHostUnreached, rig.OverXtables)

func TestEnginesHostUnreached(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist+"host.docker.internal:11434\n"+rig.SidecarEntry("172.30.0.1:11434\n"), lab.BoxOptions{Hosts: []string{"172.30.0.1 host.docker.internal"}})
	open := w.Beside(lab.BoxOptions{})
	ula := func(b *lab.Box) string { return b.ULA().Prev().String() }
	for _, tt := range []struct{ confined, open string }{
		{w.Box.Gateway4().String(), open.Gateway4().String()}, {w.Box.Gateway6().String(), open.Gateway6().String()},
		{ula(w.Box), ula(open)}, {"fe80::1%eth0", "fe80::1%eth0"},
	} {
		for _, udp := range []string{"-udp=false", "-udp"} {
			if p := w.Blocked("scan", udp, "-timeout", "300ms", tt.confined, nearPorts); p.Detail["n"] != float64(1028) {
				t.Errorf("not all ports were tried: %s", p)
			}
			if n := count(open.Poke(lab.AgentUID, "scan", udp, "-timeout", "5s", tt.open, nearPorts)); n != 1028 {
				t.Errorf("proves nothing: the scan of %s finds %d ports without confinement", tt.open, n)
			}
		}
		w.Blocked("ping", "-timeout", "300ms", tt.confined)
		// Its port 53 is the guard's, who asks only its own servers.
		w.Blocked("dns", rig.Target(tt.confined, 53), "evil.test", "A")
		w.Blocked("dns", "-tcp", rig.Target(tt.confined, 53), "evil.test", "A")
	}
	w.Unasked("evil.test")
	w.Sealed(rig.NotGuards)
	// By its name it is no more open, but for the port that the policy names.
	w.Blocked("tcp", "host.docker.internal:2375")
	w.Works("tcp", "-send", "x", "host.docker.internal:11434")
	w.Sealed(rig.NotGuards, lab.Not(lab.ToPort(unix.IPPROTO_TCP, 11434)))
}

var _ = rig.Also(TestNeighboursUnreached, rig.OverXtables)

func TestNeighboursUnreached(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	open := w.Beside(lab.BoxOptions{})
	for _, b := range []*lab.Box{open, w.Box} {
		poke := w.Poke
		if b == open {
			poke = func(args ...string) lab.Poke { return b.Poke(lab.AgentUID, args...) }
		}
		other := w.Box
		if b == w.Box {
			other = open
		}
		for _, a := range []netip.Addr{b.Neighbor4(), b.Neighbor6(), other.Addr4(), other.Addr6()} {
			for _, args := range [][]string{
				{"tcp", "-timeout", "500ms", rig.Target(a.String(), 5432)}, {"udp", "-timeout", "500ms", rig.Target(a.String(), 4433)},
				{"ping", "-timeout", "500ms", a.String()},
			} {
				b.ForgetPackets()
				p := poke(args...)
				if left := len(b.Packets(rig.Toward(a.String()))) > 0; left != (b == open) || b == w.Box && p.OK {
					t.Errorf("open box: %t: %v: left the box: %t: %s", b == open, args, left, p)
				}
			}
		}
	}
	// Not even a question for the address on the link: who asks for whom is a
	// message, too. These addresses nobody has been asked for yet.
	for _, b := range []*lab.Box{open, w.Box} {
		args4, args6 := []string{"udp", "-noreply", nobody4(b) + ":4433"}, []string{"udp", "-noreply", "[" + nobody6(b) + "]:4433"}
		for _, args := range [][]string{args4, args6} {
			if b == open {
				b.Poke(lab.AgentUID, args...)
			} else {
				w.Blocked(args...)
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

var _ = rig.Also(TestMetadataUnreached, rig.Everywhere)

func TestMetadataUnreached(t *testing.T) {
	// Blocks around them may be in the policy, and names that mean them.
	const around = rig.Allowlist + `
168.63.129.0/24
100.100.100.0/24
[fd00:ec2::]/64
[fd20:ce::]/64
metadata.google.internal private
meta6.test private
hosted.test private
`
	w := rig.Confine(t, around, lab.BoxOptions{Hosts: []string{"169.254.169.254 hosted.test", "168.63.129.16 hosted.test"}})
	open := w.Beside(lab.BoxOptions{})
	w.Lab.DNS.SetAddrs("metadata.google.internal", "169.254.169.254", "168.63.129.16")
	w.Lab.DNS.SetAddrs("meta6.test", "fd00:ec2::254", "64:ff9b::a9fe:a9fe", "::ffff:169.254.169.254")
	for _, name := range []string{"metadata.google.internal", "meta6.test"} {
		w.Blocked("dns", lab.Upstream4.String()+":53", name, "A")
		w.Blocked("dns", lab.Upstream4.String()+":53", name, "AAAA")
	}
	w.Blocked("http", "http://metadata.google.internal/computeMetadata/v1/")
	w.Blocked("http", "http://hosted.test/latest/meta-data/")
	for _, a := range metadata() {
		for _, args := range [][]string{
			{"tcp", rig.Target(a, 80)}, {"tcp", rig.Target(a, 443)}, {"udp", "-noreply", rig.Target(a, 80)}, {"ping", "-timeout", "500ms", a},
		} {
			w.Refused(open, rig.Toward(a), args...)
		}
		r := w.Root("poke", "tcp", rig.Target(a, 80))
		if p, err := lab.ParsePoke(r.Stdout); err != nil || p.OK {
			t.Errorf("%s as root: %s", a, r)
		}
	}
	w.Sealed(rig.NotGuards)
	// The blocks themselves are open.
	w.Works("tcp", "168.63.129.17:443")
	w.Works("tcp", "[fd00:ec2::255]:443")

	// No entry may name them, and a policy that has one is not taken.
	for _, a := range append(metadata(), "169.254.0.0/16", "169.254.1.1", "224.0.0.251", "255.255.255.255", "0.0.0.0", "ff02::fb") {
		if strings.Contains(a, ":") {
			a = "[" + a + "]"
		}
		for _, entry := range []string{a, a + " private"} {
			if r := w.SetPolicy(rig.Allowlist + entry + "\n"); r.Code != 78 {
				t.Errorf("policy with %q: %s", entry, r)
			}
		}
	}
	w.Blocked("tcp", "169.254.169.254:80")
	w.Works("tcp", "168.63.129.17:443") // the old one is in force
}

var _ = rig.Also(TestMetadataAddressStopsTheStart, rig.OverXtables)

// TestMetadataAddressStopsTheStart: neither does a container start with one.
func TestMetadataAddressStopsTheStart(t *testing.T) {
	w := rig.Start(t, rig.Allowlist+"169.254.169.254:80 private\n", lab.BoxOptions{}, "agent-init", "run", "--", "poke", "tcp", "169.254.169.254:80")
	if r := w.Agent.Wait(0); r.Code != 78 || !strings.Contains(r.Stderr, "169.254.169.254") {
		t.Errorf("got %s", r)
	}
	w.Sealed()
}
