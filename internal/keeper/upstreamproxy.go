package keeper

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// Where there is an upstream proxy, the broker alone reaches it, and knows its credential. The guard asks the broker for
// connections, and gets each for one name at one address. What goes that way is leased as what is inspected is: it is
// redirected to the guard, and nobody goes out to its address.

// proxyRoute is the upstream proxy as what has a credential.
func proxyRoute(s policy.Settings) route.Route {
	r := route.Route{Name: "upstream_proxy", Keyless: s.UpstreamProxy.Credential == ""}
	if !r.Keyless {
		r.Credential = []route.Source{{File: s.UpstreamProxy.Credential}}
	}
	return r
}

// ofProxy reads the credential of the upstream proxy. One that is missing ends the start: without it, nothing would go.
func (c *credentials) ofProxy(p *policy.Policy) error {
	if p.Settings.UpstreamProxy.Host == "" {
		return nil
	}
	why, err := c.look(proxyRoute(p.Settings))
	switch {
	case err != nil:
		return fault.New(fault.Policy, c.remedy(), "upstream_proxy: the credential can't be used: %w", err)
	case why != "":
		return fault.New(fault.Policy, c.remedy(), "upstream_proxy: %s", why)
	}
	return nil
}

// judgeProxy says why connections can't go by the upstream proxy of p here.
func (b *base) judgeProxy(p *policy.Policy, in *inside, reduced bool) error {
	switch {
	case p.Settings.UpstreamProxy.Host == "":
	case in.has(p.Settings.UpstreamProxy.Host):
		return fault.New(fault.Policy, "put the proxy behind the gateway's way out", "upstream_proxy: the proxy is in the agents' network, where they reach it past the gateway")
	case reduced:
		return fault.New(fault.Policy, "use another runtime than gVisor, or take upstream_proxy out", "upstream_proxy: %s", insideGVisor.why)
	case b.config.Monitor:
		return fault.New(fault.Policy, "start with --mode enforce, or take upstream_proxy out",
			"upstream_proxy: in monitor mode, what the policy does not allow goes straight, and not by the proxy")
	}
	return nil
}

// proxiable says why there is nobody to go by the upstream proxy of p.
func (r *rules) proxiable(p *policy.Policy) error {
	switch {
	case p.Settings.UpstreamProxy.Host == "":
		return nil
	case r.broker.uid != 0:
		return nil
	}
	return fault.New(fault.Policy, "start the container again to have it", "upstream_proxy: there was neither a proxy nor a route when agent-init was started")
}

// proxyUse is how long a connection by the proxy keeps the lease of its name, from its beginning: what is under way does
// not show in the kernel's sets, where nobody goes to the address.
const proxyUse = time.Hour

// tunnel answers the broker: may a connection of the agent's go by the proxy, to this name at this address?
func (l *leases) tunnel(ctx context.Context, m, reply wire.Message) wire.Message {
	reply.Err = true
	e, ok := asked(m)
	if !ok {
		return reply
	}
	l.moving.RLock()
	defer l.moving.RUnlock()
	p, port := l.book.policy(), policy.Port{Proto: policy.TCP, Number: m.Port}
	if !p.Decide(m.Name, port).Allowed || p.Way(m.Name, port) != policy.Gated || !p.Proxied(m.Name, port) {
		return reply
	}
	e.For = firewall.Inspected
	lease, ok := l.books.Of(e.For).Use(m.Name, e, proxyUse)
	if reply.Err = !ok; lease.TTL > 0 {
		if err := l.give(ctx, []firewall.Lease{lease}); err != nil {
			l.log.Warn("renewing a lease", "error", err)
		}
	}
	return reply
}

// keepApart leaves out of addrs, which answer a name, those by which the agent would reach the upstream proxy, or those
// of the proxy that the agent reaches already.
func (l *leases) keepApart(m wire.Message) []netip.Addr {
	x := l.book.policy().Settings.UpstreamProxy
	if x.Host == "" {
		return m.Addrs
	}
	port := policy.Port{Proto: policy.TCP, Number: x.Port}
	switch m.Flag {
	case wire.ForBroker:
		if m.Name != x.Host {
			return m.Addrs
		}
		return slices.DeleteFunc(m.Addrs, func(a netip.Addr) bool {
			return l.books.Holds(firewall.Element{Addr: a, Proto: uint8(port.Proto), Port: port.Number, For: firewall.Agent})
		})
	}
	if p := l.book.policy(); p.Way(m.Name, port) != policy.ByAddress || !p.Decide(m.Name, port).Allowed {
		return m.Addrs
	}
	proxys, _ := l.books.Of(firewall.Broker).Open(x.Host)
	if a, err := netip.ParseAddr(x.Host); err == nil {
		proxys = append(proxys, a)
	}
	return slices.DeleteFunc(m.Addrs, func(a netip.Addr) bool { return slices.Contains(proxys, a) })
}
