package inspect

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// brokered is a route of the broker to what was asked about.
type brokered struct {
	Route     string   `json:"route"`
	Source    string   `json:"source"` // file:line
	To        string   `json:"to"`
	Present   bool     `json:"present"`
	Why       string   `json:"why,omitempty"`       // it is absent
	Base      string   `json:"base,omitempty"`      // where the agent asks, if the broker serves
	Variables []string `json:"variables,omitempty"` // of the agent's, which say that
	Asked     []string `json:"asked"`               // METHOD PATH that passes; with a path, only those that have it
	Harmless  []string `json:"harmless,omitempty"`  // METHOD PATH that is refused, and that clients do without
	Path      string   `json:"path,omitempty"`      // that was asked about, below the route
}

// behindBroker turns what stands for a host of a route, the broker's own URL or the route's name, into that host.
func (p published) behindBroker(s subject) subject {
	routes := p.policy.RouteEntries()
	name, below := "", ""
	switch {
	case s.addr.IsLoopback() && p.state != nil && p.state.Broker.Port != 0 && s.port.Number == p.state.Broker.Port:
		name, below, _ = strings.Cut(strings.TrimPrefix(s.path, "/"), "/")
	case s.path == "" && s.port.Number == 0 && !p.policy.Lookup(s.name).Allowed:
		name = s.name
	}
	i := slices.IndexFunc(routes, func(r policy.RouteEntry) bool { return r.Name == name })
	if i < 0 {
		return s
	}
	to, err := parseSubject(routes[i].To)
	if err != nil {
		return s
	}
	if below != "" {
		to.path += "/" + below
	}
	return to
}

// portsOfRoutes are those on which present routes lead to s.
func (p published) portsOfRoutes(s subject) (ports []policy.Port) {
	for _, r := range p.policy.Brokered(s.String(), policy.Port{}) {
		if to, err := parseSubject(r.To); err == nil && !r.Absent && !slices.Contains(ports, to.port) {
			ports = append(ports, to.port)
		}
	}
	return ports
}

// reached says whether a present route leads to what was asked about.
func (x explanation) reached() bool {
	return slices.ContainsFunc(x.Broker, func(b brokered) bool { return b.Present })
}

// brokered are the routes to s.
func (p published) brokered(s subject) (all []brokered) {
	for _, r := range p.policy.Brokered(s.String(), s.port) {
		b := brokered{Route: r.Name, Source: r.Source, To: r.To, Present: !r.Absent, Asked: []string{}}
		if r.Absent {
			b.Why = p.absence(r)
		} else if p.state != nil && p.state.Broker.Port != 0 {
			b.Base = fmt.Sprintf("http://%s/%s", netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), p.state.Broker.Port), r.Name)
		}
		for _, v := range slices.Sorted(maps.Keys(r.Env)) {
			if strings.Contains(r.Env[v], "{base}") {
				b.Variables = append(b.Variables, v)
			}
		}
		to, err := parseSubject(r.To)
		below, under := strings.CutPrefix(s.path, to.path)
		if under = under && err == nil && (below == "" || below[0] == '/'); under {
			b.Path = below
		} else {
			b.Path = s.path
		}
		having := func(endpoints []route.Endpoint) (some []string) {
			for _, e := range endpoints {
				if b.Path == "" || under && e.MatchPath(b.Path) {
					some = append(some, e.Method+" "+e.Path)
				}
			}
			return some
		}
		b.Asked, b.Harmless = append(b.Asked, having(r.Endpoints)...), having(r.Harmless)
		all = append(all, b)
	}
	return all
}

// absence is why r is absent: as the keeper says, or as its credential is looked for.
func (p published) absence(r policy.RouteEntry) string {
	if p.state != nil {
		for _, known := range p.state.Broker.Routes {
			if known.Name == r.Name && known.Why != "" {
				return known.Why
			}
		}
	}
	where, _, _ := strings.Cut(r.Authentication(), "; ")
	return "there is no credential in " + where
}

func (b brokered) write(w *text.Screen) {
	if !b.Present {
		w.Row("broker", "not reached through it: the route %s (%s) is absent: %s", b.Route, b.Source, text.Clean(b.Why))
		return
	}
	where := b.Base
	if where == "" {
		where = "by the route " + b.Route
	}
	if len(b.Variables) > 0 {
		where += ", which the agent has in " + strings.Join(b.Variables, ", ")
	}
	w.Row("broker", "reached through the broker: %s (%s)", where, b.Source)
	switch asked := strings.Join(b.Asked, ", "); {
	case b.Path == "":
		w.Row("asked", "%s; nothing else passes", asked)
	case len(b.Asked) > 0:
		w.Row("asked", "%s passes, if what it has inside does", asked)
	case len(b.Harmless) == 0:
		w.Row("asked", "%s is refused: no method of it is the route's", text.Clean(b.Path))
	}
	if len(b.Harmless) > 0 {
		w.Row("harmless", "%s is refused, and does no harm: clients ask it at their start, and do without", strings.Join(b.Harmless, ", "))
	}
}
