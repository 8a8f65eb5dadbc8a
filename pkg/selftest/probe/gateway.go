package probe

import (
	"context"
	"net"
	"net/netip"

	"github.com/agent-init/agent-init/pkg/selftest"
)

// gatewayPorts are those of the name gate, and of what else a container or its host often serves: SSH, the engine, a
// proxy, and the kubelet.
func gatewayPorts() []uint16 { return []uint16{443, 80, 22, 2375, 3128, 8080, 10250} }

// throughGateway are the probes of what a gateway itself serves, and of names that it has to read inside of connections.
// All of them have to be blocked.
func (p plan) throughGateway(r *net.Resolver) (probes []probe) {
	if len(p.Gateways) == 0 || len(p.Denied) == 0 {
		return nil
	}
	name := p.Denied[0]
	add := func(check, target, family string, run attempt) {
		probes = append(probes, probe{check: selftest.Check{Name: check, Target: target, Family: family}, run: run})
	}
	for _, gateway := range p.Gateways {
		for _, port := range gatewayPorts() {
			a := netip.AddrPortFrom(gateway, port)
			add("gateway", a.String(), family(gateway), func(ctx context.Context) outcome { return askAt(ctx, a, name) })
		}
		quic := netip.AddrPortFrom(gateway, 443)
		add("gateway", quic.String()+"/udp", family(gateway), sendQUIC(quic))
	}
	for _, t := range p.Reach {
		// On other ports a name is passed by its address.
		if _, err := netip.ParseAddr(t.Name); err != nil && (t.Port == 443 || t.Port == 80) {
			add("other-name", name+" at "+t.String(), "", askElsewhere(r, t, name))
		}
	}
	return probes
}

// askElsewhere asks for a name at each address of another.
func askElsewhere(r *net.Resolver, t selftest.Target, name string) attempt {
	return func(ctx context.Context) outcome {
		addrs, err := r.LookupNetIP(ctx, "ip", t.Name)
		if err != nil { // which "reach" says
			return unknown(err)
		}
		return worstOf(addrs, t.Port, func(a netip.AddrPort) outcome { return askAt(ctx, a, name) })
	}
}
