package guard

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/resolver"
)

// routes resolves the hosts of the broker's routes, and inspected names: by a policy of their own, into leases of their
// own. Only the keeper asks it, and no socket leads there. Where that policy has never been, there is nothing of it.
type routes struct {
	config resolver.Config
	server atomic.Pointer[resolver.Server]
}

// resolveRoutes makes the routes' resolver like the agent's, but for the broker.
func (g *guard) resolveRoutes(like resolver.Config) {
	c := like
	none := new(policy.Policy)
	c.Policy = func() *policy.Policy {
		if own := g.policy.Load().Broker; own != nil {
			return own
		}
		return none
	}
	c.Admit = g.admitFor(wire.ForBroker)
	c.Record = func(e audit.Event) {
		e.Asker = audit.ByBroker
		like.Record(e)
	}
	c.Find, c.FindAllowed, c.Aside = audit.Nobody, audit.Nobody, func(string) bool { return false }
	// What is not leased is of no use to it. A name below a wildcard has been paid for when the agent asked for it.
	c.Monitor, c.Spend = false, nil
	g.routes.config = c
}

// adopt is called before p is the guard's policy.
func (r *routes) adopt(p *policy.Policy, ups []policy.Upstream) error {
	s := r.server.Load()
	switch {
	case s != nil:
		return s.SetUpstreams(ups)
	case p.Broker == nil:
		return nil
	}
	r.config.Upstreams = ups
	s, err := resolver.New(r.config)
	if err == nil {
		r.server.Store(s)
	}
	return err
}

// lateFamily is how long the addresses of one family wait for those of the other (RFC 8305, section 3).
const lateFamily = 50 * time.Millisecond

func (r *routes) lookup(ctx context.Context, name string) ([]netip.Addr, time.Duration, error) {
	s := r.server.Load()
	if s == nil {
		return nil, 0, errors.New("there is nothing that is to be reached")
	}
	return s.Lookup(ctx, name, lateFamily)
}

// resolveAhead is for the first request not to wait.
func (r *routes) resolveAhead(ctx context.Context, p *policy.Policy) {
	s := r.server.Load()
	if s == nil || p.Broker == nil {
		return
	}
	var names []string
	for _, rule := range p.Broker.Names {
		// What the proxy is asked for by name is not looked up.
		if !p.Settings.UpstreamProxy.ByName || slices.ContainsFunc(rule.Ports, func(port policy.Port) bool {
			return !p.Proxied(rule.Name, port) || rule.Name == p.Settings.UpstreamProxy.Host
		}) {
			names = append(names, rule.Name)
		}
	}
	if err := s.Prefetch(ctx, names); err != nil && ctx.Err() == nil {
		r.config.Log.Info("resolving the hosts of routes ahead", "error", err)
	}
}

// resolveTime is shorter than what the keeper waits for.
const resolveTime = 4 * time.Second

// resolveFor answers the keeper.
func (g *guard) resolveFor(ctx context.Context, m wire.Message) {
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	addrs, ttl, err := g.routes.lookup(ctx, m.Name)
	reply := wire.Message{Op: wire.OpResolve, ID: m.ID, Err: err != nil, Addrs: addrs[:min(len(addrs), wire.MaxLeaseAddrs)], TTL: ttl}
	if err != nil {
		reply.Text = wire.PlainText(err.Error())
	}
	if err := g.channel.Deliver(reply); err != nil {
		g.log.Debug("answering the keeper", "error", err)
	}
}
