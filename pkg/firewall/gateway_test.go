package firewall

import (
	"context"
	"net"
	"net/netip"
	"testing"
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
