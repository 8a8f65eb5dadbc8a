package main

import (
	"context"
	"flag"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/selftest"
	"github.com/agent-init/agent-init/pkg/selftest/probe"
)

// behind are the flags of a self-test in a container behind a gateway, which knows nothing of its policy.
type behind struct{ gateway, reach, allowed given }

func (b *behind) flags(fs *flag.FlagSet) {
	fs.Var(&b.gateway, "gateway", "prove it from a container behind a gateway, which has `ADDR` there; again for its IPv6 address")
	fs.Var(&b.reach, "reach", "with --gateway: what the policy allows and must work, as `NAME[:PORT]`; may be given more than once")
	fs.Var(&b.allowed, "allowed", "with --gateway: what not to try, since the policy allows it: a `NAME`, an address or a block of addresses")
}

func (b *behind) prove(ctx context.Context) (selftest.Report, error) {
	p, err := b.plan()
	if err != nil {
		return selftest.Report{}, err
	}
	return probe.Run(ctx, p), nil
}

func (b *behind) plan() (p selftest.Plan, err error) {
	const example = "agent-init selftest --gateway 172.30.5.2 --reach api.anthropic.com"
	if len(b.gateway.items) == 0 || len(b.reach.items) == 0 {
		return p, fault.New(fault.Usage, example, "selftest: --gateway and --reach belong together: where nothing works, nothing is proved")
	}
	var gateways []netip.Addr
	for _, s := range b.gateway.items {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return p, fault.New(fault.Usage, example, "--gateway %q is no address", s)
		}
		gateways = append(gateways, a.Unmap())
	}
	var reach []selftest.Target
	for _, s := range b.reach.items {
		t, ok := targetOf(s)
		if !ok {
			return p, fault.New(fault.Usage, example, "--reach %q is neither NAME nor NAME:PORT", s)
		}
		reach = append(reach, t)
	}
	return selftest.GatewayPlan(gateways, reach, b.allows), nil
}

// targetOf reads NAME or NAME:PORT. Without a port it is that of HTTPS.
func targetOf(s string) (selftest.Target, bool) {
	t := selftest.Target{Name: s, Port: 443}
	if name, port, is := strings.Cut(s, ":"); is {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return t, false
		}
		t.Name, t.Port = name, uint16(n)
	}
	t.TLS = t.Port == 443
	return t, t.Name != "" && !strings.ContainsAny(t.Name, "/*[] ")
}

// allows says whether a name or an address is among what is said to be allowed.
func (b *behind) allows(what string) bool {
	a, _ := netip.ParseAddr(what)
	return slices.ContainsFunc(b.allowed.items, func(item string) bool {
		p, err := netip.ParsePrefix(item)
		return strings.EqualFold(item, what) || err == nil && p.Contains(a)
	})
}
