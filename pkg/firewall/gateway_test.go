package firewall

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestKernelGateway: the kernel holds a gateway's rules as they are planned, and a change of them is seen.
func TestKernelGateway(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	newLab(t)
	f := open(t, Options{Backend: "nftables"})
	link, err := net.InterfaceByName("eth0")
	must(t, err)
	c := Config{
		DropGroup: group, DNSPort4: 41053, GatePort4: 41443, AnyAgent: true,
		Inside: Inside{
			Link: uint32(link.Index), Networks: []netip.Prefix{netip.PrefixFrom(near4, 24).Masked(), netip.PrefixFrom(near6, 64).Masked()},
			DNS: []netip.AddrPort{at(near4, 42053), at(near6, 42053)}, Gate: []netip.AddrPort{at(near4, 42443), at(near6, 42443)}, Onward: true,
		},
	}
	ctx := context.Background()
	apply(t, f, c)
	must(t, f.Verify(ctx))
	apply(t, f, c)
	must(t, f.Verify(ctx))
	for _, change := range []string{
		"flush chain inet agent-init forward", "insert rule inet agent-init incoming accept", "flush chain inet agent-init arrivals",
		"flush chain inet agent-init led", "flush chain inet agent-init disguise",
	} {
		must(t, nftScript(t, change))
		if err := f.Verify(ctx); err == nil {
			t.Errorf("%s: not seen", change)
		}
		must(t, f.Repair(ctx))
		must(t, f.Verify(ctx))
	}
}

// TestKernelLargest: the kernel takes the rules of a gateway that has all that there can be, though it answers each.
func TestKernelLargest(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	newLab(t)
	f := open(t, Options{Backend: "nftables"})
	link, err := net.InterfaceByName("eth0")
	must(t, err)
	each := []Entry{{Prefix: single(other4), Proto: unix.IPPROTO_TCP, Port: 443}, {Prefix: single(other6), Proto: unix.IPPROTO_TCP, Port: 443}}
	ends := time.Now().Add(time.Hour)
	ats := func(port uint16) []netip.AddrPort { return []netip.AddrPort{at(near4, port), at(near6, port)} }
	c := Config{
		DropGroup: group, DNSPort4: 41053, GatePort4: 41443, DNSPort6: 41053, GatePort6: 41443, AnyAgent: true, GuardZone: true, Observe: true,
		Upstreams: ats(53), Allow: each, Deny: each, Granted: []Grant{{Entry: each[0], Until: ends}, {Entry: each[1], Until: ends}},
		BrokerUID: 61001, BrokerGID: 61001, BrokerAllow: each, BrokerDeny: each,
		Inside: Inside{
			Link: uint32(link.Index), Networks: []netip.Prefix{netip.PrefixFrom(near4, 24).Masked(), netip.PrefixFrom(near6, 64).Masked()},
			DNS: ats(42053), Gate: ats(42443), Broker: ats(42080), Own: []uint16{80, 443, 8443}, Onward: true,
		},
	}
	for port := range uint16(64) {
		c.Inside.Own = append(c.Inside.Own, 9000+port)
	}
	apply(t, f, c)
	must(t, f.Verify(context.Background()))
}
