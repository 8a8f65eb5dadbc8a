package filter

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

func icmpType(v6 bool, typ uint8) lab.Filter {
	proto := uint8(unix.IPPROTO_ICMP)
	if v6 {
		proto = unix.IPPROTO_ICMPV6
	}
	return func(p *lab.Packet) bool { return p.Proto == proto && p.ICMPType == typ }
}

func TestICMPStaysInside(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{Caps: rig.RawCaps()})
	open := w.Beside(lab.BoxOptions{Caps: rig.RawCaps()})
	w.Works("resolve", "ok.test")
	ok4, ok6 := rig.Named("ok.test")
	evil4, evil6 := rig.Named("evil.test")
	w.Box.ForgetPackets()
	// Datagram sockets, which everyone may open in a container.
	for _, a := range []netip.Addr{evil4, evil6, ok4, ok6, netip.MustParseAddr("fe80::1%eth0")} {
		echo := icmpType(a.Is6(), map[bool]uint8{false: 8, true: 128}[a.Is6()])
		for _, size := range []string{"56", "1024", "4000"} {
			// A ping socket learns of a refusal over IPv6 only if it asks for errors.
			if p := w.Refused(open, echo, "ping", "-timeout", "300ms", "-size", size, a.String()); a.Is4() && !rig.RefusedAtOnce(p.Errno) {
				t.Errorf("ping %s: left hanging: %s", a, p)
			}
		}
		refusedRoot(w, open, echo, "ping", "-timeout", "300ms", "-raw", "-size", "1024", a.String())
		// The agent itself can't have a raw socket.
		if p := w.Blocked("ping", "-raw", a.String()); p.Errno != "EPERM" && p.Errno != "EACCES" {
			t.Errorf("raw socket: %s", p)
		}
	}
	// Every other message could carry data as well, above all those that
	// hosts must let through for IPv6 to work.
	for _, typ := range []uint8{0, 3, 4, 5, 9, 10, 11, 12, 13, 15, 17, 40, 42} {
		refusedRoot(w, open, icmpType(false, typ), "ping", "-raw", "-type", fmt.Sprint(typ), evil4.String())
	}
	for _, to := range []string{evil6.String(), "fe80::1%eth0", "ff02::1%eth0"} {
		for _, typ := range []uint8{1, 2, 3, 4, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 143, 160} {
			own := func(p *lab.Packet) bool {
				return icmpType(true, typ)(p) && len(p.Payload) > 40 && p.Dst == netip.MustParseAddr(to).WithZone("")
			}
			refusedRoot(w, open, own, "ping", "-raw", "-size", "77", "-type", fmt.Sprint(typ), to)
		}
	}
	w.Sealed(rig.NotGuards)
}

var _ = rig.Also(TestProtocolsAboveIPRefused, rig.OverXtables)

func TestProtocolsAboveIPRefused(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{Caps: rig.RawCaps()})
	open := w.Beside(lab.BoxOptions{Caps: rig.RawCaps()})
	w.Works("resolve", "ok.test")
	ok4, ok6 := rig.Named("ok.test")
	evil4, evil6 := rig.Named("evil.test")
	w.Box.ForgetPackets()

	t.Run("agent", func(t *testing.T) {
		for _, kind := range [][]string{
			{"inet", "stream", "sctp"}, {"inet", "seqpacket", "sctp"}, {"inet", "dccptype", "dccp"}, {"inet", "dgram", "udplite"},
			{"inet6", "stream", "sctp"}, {"inet6", "dgram", "udplite"}, {"inet6", "dccptype", "dccp"},
		} {
			for _, a := range []netip.Addr{evil4, evil6, ok4, ok6} {
				if a.Is6() == (kind[0] == "inet6") {
					w.Blocked(append(append([]string{"connect", "-send", "x"}, kind...), rig.Target(a.String(), 443))...)
				}
			}
		}
		for _, proto := range []string{"1", "2", "4", "6", "17", "41", "47", "50", "58", "132", "136", "253", "255"} {
			for _, family := range []string{"inet", "inet6", "packet"} {
				if p := w.Blocked("socket", family, "raw", proto); p.Errno == "" {
					t.Errorf("%s %s: %s", family, proto, p)
				}
			}
		}
		w.Blocked("packet", "eth0", "ffffffffffff02000000000108004500001400000000400600000a0000012d1e42630000")
		w.Sealed(rig.NotGuards)
	})

	// The packet filter says no to all of them: no list of protocols is behind it.
	t.Run("root", func(t *testing.T) {
		for _, a := range []netip.Addr{evil4, evil6, ok4, ok6} {
			open.ForgetPackets()
			to := lab.ToAddr(a.String())
			if p := open.Poke(0, "rawip", "1-254", a.String()); !p.OK {
				t.Fatalf("proves nothing: %s", p)
			}
			for _, proto := range []uint8{unix.IPPROTO_IGMP, unix.IPPROTO_IPIP, unix.IPPROTO_IPV6, unix.IPPROTO_GRE, unix.IPPROTO_ESP,
				unix.IPPROTO_DCCP, unix.IPPROTO_SCTP, unix.IPPROTO_UDPLITE, 253} {
				if len(open.Packets(lab.Proto(proto), to)) == 0 {
					t.Errorf("proves nothing: protocol %d to %s", proto, a)
				}
			}
			w.Box.Poke(0, "rawip", "1-254", a.String())
			w.Traceless(to, []string{"rawip", "1-254", a.String()})
		}
		// Well-formed heads, in case that the filter lets pass what it can read.
		for _, tt := range []struct {
			proto, head string
		}{
			{"sctp", "0fa001bb00000000b1f5d2b901000014000000010000ffff000a000a00000001"}, // INIT
			{"udplite", "0fa001bb0000" + "0000" + "64617461"},
			{"dccp", "0fa001bb0400000000" + "0001000000000001" + "00000000"},
			{"gre", "00000800" + strings.Repeat("00", 20)},
			{"ipip", "45000018000100004006" + "0000" + "0a0000012d1e4206" + "64617461"},
			{"igmp", "1600e9fa" + "e00000fb"},
			{"udp", "0fa01110000c0000" + "64617461"},
		} {
			refusedRoot(w, open, lab.ToAddr(evil4.String()), "rawip", "-hex", tt.head, tt.proto, evil4.String())
		}
		w.Sealed(rig.NotGuards)
	})
}

var _ = rig.Also(TestMulticastRefused, rig.OverXtables)

func TestMulticastRefused(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	open := w.Beside(lab.BoxOptions{})
	for _, to := range []string{
		"224.0.0.251:5353", "224.0.0.252:5355", "239.255.255.250:1900", "224.0.0.1:9", "232.1.2.3:4444",
		"255.255.255.255:9", "255.255.255.255:67", "169.254.1.1:4444", "240.0.0.1:4444",
		"[ff02::fb%eth0]:5353", "[ff02::1:3%eth0]:5355", "[ff02::c%eth0]:1900", "[ff02::1%eth0]:4444", "[ff02::2%eth0]:4444",
		"[ff05::c]:1900", "[ff0e::1234]:4444", "[fe80::1%eth0]:4444",
	} {
		w.Refused(open, rig.Toward(netip.MustParseAddrPort(to).Addr().String()), "udp", "-noreply", to)
	}
	// The subnet's own broadcast address, which the kernel knows for one.
	for _, b := range []*lab.Box{w.Box, open} {
		last := b.Addr4().As4()
		last[3] = 255
		to := netip.AddrPortFrom(netip.AddrFrom4(last), 4444)
		p := b.Poke(lab.AgentUID, "udp", "-noreply", to.String())
		if sent := len(b.Packets(lab.ToAddr(to.Addr().String()))); (sent > 0) != (b == open) || p.OK != (b == open) {
			t.Errorf("%s: %d packets: %s", to, sent, p)
		}
	}
	w.Sealed(rig.NotGuards)
}

var _ = rig.Also(TestMembershipTellsNobody, rig.OverXtables)

// TestMembershipTellsNobody: who joins a group has the kernel tell the link, in a
// message whose address is of the agent's choice.
func TestMembershipTellsNobody(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	open := w.Beside(lab.BoxOptions{})
	reports := func(p *lab.Packet) bool {
		return p.Proto == unix.IPPROTO_IGMP || p.Proto == unix.IPPROTO_ICMPV6 && (p.ICMPType == 131 || p.ICMPType == 132 || p.ICMPType == 143)
	}
	groups := []string{"239.68.65.84", "ff15::6461:7461"}
	about := func(group string) lab.Filter {
		raw := string(netip.MustParseAddr(group).AsSlice())
		return func(p *lab.Packet) bool { return reports(p) && strings.Contains(string(p.Raw), raw) }
	}
	var joined []*lab.Process
	for _, g := range groups {
		args := []string{"poke", "join", "-hold", "90s", g, "eth0"}
		joined = append(joined,
			w.Box.ExecStart(lab.Cmd{Args: append([]string{"agent-init", "exec", "--"}, args...)}),
			open.ExecStart(lab.Cmd{Args: args, UID: lab.AgentUID}))
	}
	// The kernel repeats its report after a random time of up to a second:
	// when the open box has, the other would have too.
	for _, g := range groups {
		if !rig.Eventually(10*time.Second, func() bool { return len(open.Packets(about(g))) > 1 }) {
			t.Errorf("proves nothing: no reports of %s without confinement", g)
		}
	}
	for _, b := range []*lab.Box{w.Box, open} {
		for _, member := range []string{"544144EF", "ff150000000000000000000064617461"} {
			if !rig.Eventually(10*time.Second, func() bool {
				groups := b.Exec(lab.Cmd{Args: []string{"cat", "/proc/net/igmp", "/proc/net/igmp6"}})
				return strings.Contains(groups.Stdout, member)
			}) {
				t.Errorf("proves nothing: not a member of %s", member)
			}
		}
	}
	for _, p := range joined { // leaving is told, too
		rig.Must(t, p.Signal(unix.SIGKILL))
		p.Wait(0)
	}
	for _, g := range groups {
		if p := w.Box.Packets(about(g)); len(p) > 0 {
			t.Errorf("told the link of %s: %s", g, p[0])
		}
	}
}

var _ = rig.Also(TestFragmentsRefused, rig.OverXtables)

func TestFragmentsRefused(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist+"45.30.9.10:4433/udp\n", lab.BoxOptions{Caps: rig.RawCaps()})
	open := w.Beside(lab.BoxOptions{Caps: rig.RawCaps()})
	evil4, evil6 := rig.Named("evil.test")
	w.Refused(open, lab.ToAddr(evil4.String()), "fragudp", rig.Target(evil4.String(), 4444))
	w.Refused(open, lab.ToAddr(evil6.String()), "udp", "-noreply", "-size", "4000", rig.Target(evil6.String(), 4444))
	for _, flags := range [][]string{{"fragsyn"}, {"fragsyn", "-nodefrag"}} {
		for _, port := range []uint16{22, 53, 443, 8443} {
			refusedRoot(w, open, lab.ToAddr(evil4.String()), append(flags, rig.Target(evil4.String(), port))...)
		}
		refusedRoot(w, open, lab.ToAddr("45.30.9.9"), append(flags, "45.30.9.9:22")...)
	}
	w.Sealed(rig.NotGuards)
	// To what is allowed, fragments go.
	w.Works("fragudp", "45.30.9.10:4433")
	if n := w.Box.Packets(lab.ToAddr("45.30.9.10")); len(n) < 3 || !n[1].Fragment {
		t.Errorf("fragments to an allowed address: %v", n)
	}
	// Unless they hide where they go: what has no port to be seen stays.
	w.Box.ForgetPackets()
	w.Box.Poke(0, "fragsyn", "-nodefrag", "45.30.9.9:8443")
	for _, p := range w.Box.Packets(lab.ToAddr("45.30.9.9")) {
		if p.DstPort != 8443 {
			t.Errorf("a fragment without a port left the box: %s", p)
		}
	}
}
