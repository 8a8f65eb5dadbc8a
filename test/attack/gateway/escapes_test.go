package gateway

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// hardware is the address of a link of a box's.
func hardware(t *testing.T, b *lab.Box, name string) (mac net.HardwareAddr) {
	t.Helper()
	rig.Must(t, b.Net.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err == nil {
			mac = l.Attrs().HardwareAddr
		}
		return err
	}))
	return mac
}

// ways are a box's routes, as text, and the hardware addresses of its neighbours outside.
func ways(t *testing.T, b *lab.Box) (out string, hardware []string) {
	t.Helper()
	rig.Must(t, b.Net.Do(func() error {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			routes, err := netlink.RouteList(nil, family)
			if err != nil {
				return err
			}
			for _, r := range routes {
				out += r.String() + "\n"
			}
		}
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		neighbours, err := netlink.NeighList(eth0.Attrs().Index, 0)
		for _, n := range neighbours {
			if n.HardwareAddr != nil {
				hardware = append(hardware, n.HardwareAddr.String())
			}
		}
		return err
	}))
	return out, hardware
}

// hostile are frames that root of an agent's container sends past its own kernel, by what they are to do.
func hostile(k *rig.Kept) map[string][]string {
	mine, gate := hardware(k.T, k.Agent, "eth0"), hardware(k.T, k.Box, "eth1")
	evil4, evil6 := rig.Named("evil.test")
	me4, me6 := k.Agent.Addr4(), k.Agent.Addr6()
	to4 := func(src, dst netip.Addr) craft { return craft{from: mine, to: gate, src: src, dst: dst} }
	plain4, plain6 := to4(me4, evil4), to4(me6, evil6)
	out := map[string][]string{
		"a datagram":               {plain4.udp(4000, 9, "LEAK").hex(), plain6.udp(4000, 9, "LEAK").hex()},
		"a first segment":          {plain4.tcp(4001, 443, 2, "").hex(), plain6.tcp(4001, 443, 2, "").hex()},
		"the middle of a stream":   {plain4.tcp(4002, 443, 0x10, "LEAK").hex(), plain6.tcp(4002, 443, 0x18, "LEAK").hex()},
		"an answer to nobody":      {plain4.tcp(443, 4003, 0x12, "").hex(), plain6.tcp(443, 4003, 0x12, "").hex()},
		"a question elsewhere":     {plain4.udp(53, 53, "LEAK").hex(), plain4.tcp(4004, 853, 2, "").hex()},
		"an echo request":          {plain4.icmp(8, 0, []byte("\x00\x01\x00\x01LEAK")...).hex(), plain6.icmp(128, 0, []byte("\x00\x01\x00\x01LEAK")...).hex()},
		"an error about nothing":   {plain4.icmp(3, 3, append([]byte{0, 0, 0, 0}, plain4.udp(1, 2, "LEAK").packet()...)...).hex()},
		"in fragments":             append(plain4.udp(4005, 9, strings.Repeat("LEAK", 10)).fragments(24), plain6.udp(4005, 9, strings.Repeat("LEAK", 10)).fragments6(24)...),
		"a last fragment":          plain4.udp(4006, 9, strings.Repeat("LEAK", 10)).fragments(24)[1:],
		"in a VLAN":                {plain4.udp(4007, 9, "LEAK").hex(0x81, 0, 0, 0), plain4.udp(4007, 9, "LEAK").hex(0x81, 0, 0, 1)},
		"source-routed":            {sourceRouted(to4(me4, fine4), evil4).hex(), sourceRouted(to4(me4, k.Box.Inside4()), evil4).hex()},
		"by a routing header":      {routedBy(to4(me6, fine6), evil6).hex(), routedBy(to4(me6, k.Box.Inside6()), evil6).hex()},
		"behind hop-by-hop":        {plain6.udp(4008, 9, "LEAK").behindHeader(0, 0, 1, 4, 0, 0, 0, 0).hex()},
		"behind options":           {plain6.tcp(4009, 443, 2, "").behindHeader(unix.IPPROTO_DSTOPTS, 0, 1, 4, 0, 0, 0, 0).hex()},
		"about to expire":          {plain4.udp(4010, 9, "LEAK").withTTL(1).hex(), plain4.udp(4010, 9, "LEAK").withTTL(2).hex()},
		"to a link-local address":  {to4(me4, netip.MustParseAddr("169.254.169.254")).tcp(4011, 80, 2, "").hex()},
		"to everybody":             {to4(me4, netip.MustParseAddr("255.255.255.255")).udp(4012, 9, "LEAK").hex(), to4(me4, netip.MustParseAddr("224.0.0.251")).udp(5353, 5353, "LEAK").hex()},
		"to loopback":              {to4(me4, netip.MustParseAddr("127.0.0.1")).udp(4013, 7002, "LEAK").hex(), to4(me6, netip.IPv6Loopback()).udp(4013, 7003, "LEAK").hex()},
		"to the way out's address": {to4(me4, k.Box.Addr4()).udp(4014, 7002, "LEAK").hex(), to4(me6, k.Box.Addr6()).udp(4014, 7003, "LEAK").hex()},
		"to the gateway":           {to4(me4, k.Box.Inside4()).udp(4014, 7002, "LEAK").hex(), to4(me6, k.Box.Inside6()).udp(4014, 7003, "LEAK").hex()},
		"to the host":              {to4(me4, k.Box.Gateway4()).tcp(4015, 22, 2, "").hex(), to4(me6, k.Box.Gateway6()).tcp(4015, 22, 2, "").hex()},
	}
	for _, proto := range []uint8{0, 2, 4, 33, 41, 47, 50, 51, 103, 132, 136, 255} {
		f := to4(me4, fine4)
		f.proto, f.body = proto, []byte("LEAKLEAKLEAKLEAK")
		out["other protocols"] = append(out["other protocols"], f.hex())
	}
	return out
}

// spoofed are frames that seem to be from somebody else.
func spoofed(k *rig.Kept) map[string][]string {
	mine, gate := hardware(k.T, k.Agent, "eth0"), hardware(k.T, k.Box, "eth1")
	out := map[string][]string{}
	for name, src := range map[string]netip.Addr{
		"the gateway": k.Box.Inside4(), "the way out": k.Box.Addr4(), "the host": k.Box.Gateway4(), "the DNS server": lab.Upstream4,
		"somebody outside": netip.MustParseAddr("8.8.8.8"), "loopback": netip.MustParseAddr("127.0.0.1"), "nobody": netip.IPv4Unspecified(),
		"the server itself": fine4, "a group": netip.MustParseAddr("224.0.0.1"), "everybody": netip.MustParseAddr("255.255.255.255"),
	} {
		f := craft{from: mine, to: gate, src: src, dst: fine4}
		out["as "+name] = []string{f.tcp(4100, 8443, 2, "").hex(), f.udp(53, 9000, "LEAK").hex(), f.icmp(8, 0, 0, 1, 0, 1).hex()}
	}
	for name, src := range map[string]netip.Addr{
		"the gateway, over IPv6": k.Box.Inside6(), "the way out, over IPv6": k.Box.Addr6(), "loopback, over IPv6": netip.IPv6Loopback(),
		"the DNS server, over IPv6": lab.Upstream6, "nobody, over IPv6": netip.IPv6Unspecified(), "a link-local address": netip.MustParseAddr("fe80::77"),
	} {
		f := craft{from: mine, to: gate, src: src, dst: fine6}
		out["as "+name] = []string{f.tcp(4101, 8443, 2, "").hex(), f.udp(53, 9000, "LEAK").hex()}
	}
	return out
}

// misleading are frames that are to change where the gateway sends to.
func misleading(k *rig.Kept) map[string][]string {
	mine, gate := hardware(k.T, k.Agent, "eth0"), hardware(k.T, k.Box, "eth1")
	evil4, _ := rig.Named("evil.test")
	host4 := k.Box.Gateway4()
	local := netip.MustParseAddr("fe80::77")
	all := netip.MustParseAddr("ff02::1")
	f4 := craft{from: mine, to: gate, src: k.Box.Inside4().Prev(), dst: k.Box.Inside4()}
	f4.src = k.Agent.Addr4()
	inner := craft{src: k.Box.Addr4(), dst: lab.Upstream4}.udp(4000, 53, "12345678").packet()
	redirect := append(k.Agent.Addr4().AsSlice(), inner...)
	asHost := f4
	asHost.src = host4
	// A router advertisement: the lifetime, and a prefix (RFC 4861, 4.2 and 4.6.2).
	ra := append([]byte{64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 3, 4, 64, 0xc0, 0, 0, 7, 8, 0, 0, 7, 8, 0, 0, 0, 0}, netip.MustParseAddr("2001:db8:bad::").AsSlice()...)
	f6 := craft{from: mine, to: gate, src: local, dst: all, ttl: 255}
	toGate := f6
	toGate.dst = k.Box.Inside6()
	claim := append([]byte{0xe0, 0, 0, 0}, k.Box.Gateway6().AsSlice()...)
	claim = append(append(claim, 2, 1), mine...)
	redirect6 := append(append([]byte{0, 0, 0, 0}, local.AsSlice()...), lab.Upstream6.AsSlice()...)
	return map[string][]string{
		"a redirect":             {f4.icmp(5, 1, redirect...).hex(), asHost.icmp(5, 1, redirect...).hex(), toGate.icmp(137, 0, redirect6...).hex()},
		"a router advertisement": {f6.icmp(134, 0, ra...).hex(), toGate.icmp(134, 0, ra...).hex()},
		"ARP for the host":       {arp(2, mine, gate, host4, mine, k.Box.Addr4()), arp(2, mine, mine, host4, mine, host4), arp(1, mine, mine, host4, mine, host4)},
		"ARP for the way out":    {arp(2, mine, gate, k.Box.Addr4(), mine, k.Box.Addr4())},
		"a neighbour's claim":    {f6.icmp(136, 0, claim...).hex(), toGate.icmp(136, 0, claim...).hex()},
		"fragmentation needed":   {f4.icmp(3, 4, append([]byte{0, 0, 0, 68}, inner...)...).hex(), asHost.icmp(3, 4, append([]byte{0, 0, 0, 68}, inner...)...).hex()},
		"a source quench":        {f4.icmp(4, 0, append([]byte{0, 0, 0, 0}, inner...)...).hex(), f4.icmp(13, 0, make([]byte, 16)...).hex(), f4.icmp(17, 0, make([]byte, 8)...).hex()},
		"as if from evil":        {craft{from: mine, to: gate, src: evil4, dst: k.Box.Addr4()}.tcp(443, 4200, 0x12, "").hex()},
	}
}

// fine4 and fine6 are what the agent may reach on some ports, by framesList.
var fine4, fine6 = netip.MustParseAddr("45.30.9.9"), netip.MustParseAddr("2a0f:30:9::9")

// sourceRouted asks whom it goes to to send it on (RFC 791, 3.1).
func sourceRouted(f craft, on netip.Addr) craft {
	f = f.udp(4300, 9000, "LEAK")
	f.options = append(append([]byte{131, 7, 4}, on.AsSlice()...), 0)
	return f
}

// routedBy likewise, over IPv6 (RFC 8754, and what RFC 5095 has taken back).
func routedBy(f craft, on netip.Addr) craft {
	f = f.udp(4301, 9000, "LEAK")
	return f.behindHeader(unix.IPPROTO_ROUTING, append([]byte{2, 4, 1, 0, 0, 0, 0}, on.AsSlice()...)...)
}

// escaped is what has left the gateway by its way out, but for the guard's questions.
func escaped(k *rig.Kept, filters ...lab.Filter) []lab.Packet {
	k.Helper()
	return k.Box.Packets(append(filters, lab.Routed, lab.Not(lab.ToAddr(lab.Upstream4.String())), lab.Not(lab.ToAddr(lab.Upstream6.String())))...)
}

const framesList = rig.Allowlist + "45.30.9.9:9000/udp\n[2a0f:30:9::9]:9000/udp\n[2a0f:30:9::9]:8443\n"

// TestGatewayFrames: root of an agent's container sends frames past its own kernel. Nothing of it leaves the gateway,
// nothing reaches what else listens there, and nothing changes where the gateway sends to.
func TestGatewayFrames(t *testing.T) {
	k := keptBy(t, framesList)
	heard := ears(k, k.Box)
	k.Works("http", "https://ok.test/") // each knows its neighbours
	mine, gate := hardware(t, k.Agent, "eth0"), hardware(t, k.Box, "eth1")
	good := craft{from: mine, to: gate, src: k.Agent.Addr4(), dst: fine4}.udp(4400, 9000, "GOOD")
	good6 := craft{from: mine, to: gate, src: k.Agent.Addr6(), dst: fine6}.udp(4400, 9000, "GOOD")
	// Behind each attack, frames as they should be get through: so it had its time.
	isGood := func(p *lab.Packet) bool { return string(p.Payload) == "GOOD" }
	attack := func(frames ...string) []lab.Packet {
		k.Box.ForgetPackets()
		send(k, append(frames, good.hex(), good6.hex())...)
		if !rig.Eventually(lab.Patience, func() bool { return len(k.Box.Packets(isGood)) == 2 }) {
			t.Fatalf("frames as they should be don't get through: %v", k.Box.Packets())
		}
		return escaped(k, lab.Not(isGood))
	}
	before, known := ways(t, k.Box)
	for what, catalogue := range map[string]map[string][]string{"hostile": hostile(k), "spoofed": spoofed(k), "misleading": misleading(k)} {
		for name, frames := range catalogue {
			if got := attack(frames...); len(got) > 0 {
				t.Errorf("%s: %s: %v", what, name, got)
			}
		}
	}
	// The router's own addresses may come to be known meanwhile.
	after, neighbours := ways(t, k.Box)
	if strange := slices.DeleteFunc(neighbours, func(n string) bool { return slices.Contains(known, n) || strings.HasPrefix(n, "33:33:") }); after != before || len(strange) > 0 {
		t.Errorf("the gateway sends elsewhere: before\n%s\nafter\n%s\nand to %v", before, after, strange)
	}
	for _, target := range []string{rig.At(k.Box.Inside4(), 7002), rig.At(k.Box.Addr4(), 7002), rig.At(k.Box.Inside6(), 7003), rig.At(k.Box.Addr6(), 7003)} {
		k.Blocked("udp", target)
	}
	k.Works("http", "https://ok.test/")
	if got := heard(); len(got) > 0 {
		t.Errorf("what else listens on the gateway was reached: %v", got)
	}
}

// send has root of the agent's container send frames.
func send(k *rig.Kept, frames ...string) {
	k.Helper()
	if p := k.AsRoot(append([]string{"packet", "eth0"}, frames...)...); !p.OK {
		k.Fatalf("can't send frames: %s", p)
	}
}
