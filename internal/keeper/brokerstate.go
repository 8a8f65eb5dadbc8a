package keeper

import (
	"math"
	"net/url"
	"slices"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// routesOf are the routes of p as people see them, with the counts of those that there were before.
func routesOf(p *policy.Policy, c *credentials, before []state.Route) (out []state.Route) {
	counted := func(name string) state.Route {
		if i := slices.IndexFunc(before, func(r state.Route) bool { return r.Name == name }); i >= 0 {
			return before[i]
		}
		return state.Route{Name: name}
	}
	for _, r := range p.Settings.Broker {
		s, held := counted(r.Name), c.of(r)
		s.Present, s.Why, s.To, s.Source, s.Fault = true, "", r.To, held.source, held.fault
		s.Fingerprint, s.ByName = route.Fingerprint(held.secret), false
		if r.Keyless {
			s.Source = "none"
		}
		out = append(out, s)
	}
	for _, name := range p.AbsentRoutes {
		s := counted(name)
		s.Present, s.Source, s.Fault, s.Fingerprint = false, "", "", ""
		s.Why, s.To = c.absence(name)
		if u, err := url.Parse(s.To); err == nil {
			s.ByName = len(p.Ports(u.Hostname())) > 0
		}
		out = append(out, s)
	}
	return out
}

// publishRoutes has the status know the routes in force.
func (b *book) publishRoutes() {
	p := b.policy()
	if b.phase() == policy.Sealed { // they are back in a moment, with their counts
		return
	}
	b.update(func(s *state.State) { s.Broker.Routes = routesOf(p, b.credentials, s.Broker.Routes) })
}

// count has the status know what a request has come to. What the broker says of it is neither trusted nor unlimited.
func (k *brokerKeeper) count(m wire.Message) {
	k.update(func(s *state.State) {
		i := slices.IndexFunc(s.Broker.Routes, func(r state.Route) bool { return r.Name == m.Name })
		if i < 0 {
			return
		}
		s.Broker.Routes = slices.Clone(s.Broker.Routes) // who has a copy of the state reads the old one
		r := &s.Broker.Routes[i]
		if m.Flag == wire.SpentRefused {
			r.Refusals++
		} else {
			r.Requests++
		}
		r.TokensIn += min(m.Arg, math.MaxUint64-r.TokensIn)
		r.TokensOut += min(uint64(max(0, m.Value)), math.MaxUint64-r.TokensOut)
		if m.Text != "" {
			r.LastError = wire.PlainText(m.Text)
		}
	})
}
