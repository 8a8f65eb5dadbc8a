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
	Route     string          `json:"route"`
	Source    string          `json:"source"` // file:line
	To        string          `json:"to"`
	Present   bool            `json:"present"`
	Why       string          `json:"why,omitempty"`       // it is absent
	Base      string          `json:"base,omitempty"`      // where the agent asks, if the broker serves
	Variables []string        `json:"variables,omitempty"` // of the agent's, which say that
	Git       *route.Git      `json:"git,omitempty"`       // which repositories there are
	Packages  *route.Packages `json:"packages,omitempty"`  // which packages there are
	Asked     []string        `json:"asked"`               // METHOD PATH that passes; with a path, only those that have it
	Harmless  []string        `json:"harmless,omitempty"`  // METHOD PATH that is refused, and that clients do without
	Query     []string        `json:"query,omitempty"`     // parameters that pass on a route of one's own
	Path      string          `json:"path,omitempty"`      // that was asked about, below the route
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
			if strings.Contains(r.Env[v], "{base}") || strings.Contains(r.Env[v], "{dir}") {
				b.Variables = append(b.Variables, v)
			}
		}
		if r.ServesGit() {
			b.Git = &r.Git
		}
		if r.Packages.Registry != "" {
			b.Packages = &r.Packages
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
		b.Asked, b.Harmless, b.Query = append(b.Asked, having(r.Endpoints)...), having(r.Harmless), r.Query
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

// repository says of a path that git does not ask itself what git may do with the repository of that name.
func (b brokered) repository() string {
	name := strings.TrimSuffix(strings.Trim(b.Path, "/"), ".git")
	switch {
	case strings.Count(name, "/") == 0 || !b.Git.Has(name):
		return text.Clean(b.Path) + " is refused: no repository of that name is the route's"
	case b.Git.Write:
		return "git fetches from " + text.Clean(name) + ", and pushes; the page of it is refused"
	}
	return "git fetches from " + text.Clean(name) + "; a push and the page of it are refused"
}

// packages says in words which of a registry's there are.
func packages(p *route.Packages) string {
	said := "any of " + p.Registry
	if len(p.Allow) > 0 {
		said = strings.Join(p.Allow, ", ") + " of " + p.Registry
	}
	if len(p.Deny) > 0 {
		said += ", but not " + strings.Join(p.Deny, ", ")
	}
	if p.MinAge > 0 {
		said += "; versions younger than " + text.Days(p.MinAge) + " do not exist"
	}
	return said
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
	if b.Git != nil {
		w.Row("git", "%v", *b.Git)
	}
	if b.Packages != nil {
		w.Row("packages", "%s", packages(b.Packages))
	}
	switch asked := strings.Join(b.Asked, ", "); {
	case b.Git != nil && b.Path != "" && len(b.Asked) == 0:
		w.Row("asked", "%s", b.repository())
	case b.Git != nil && b.Path == "": // what git asks there says nothing to a person
	case b.Packages != nil && b.Path == "":
		w.Row("asked", "what reads packages; nothing that publishes passes")
	case b.Packages != nil && len(b.Asked) > 0:
		w.Row("asked", "%s passes, if the package does", asked)
	case b.Path == "":
		w.Row("asked", "%s; nothing else passes", asked)
	case len(b.Asked) > 0:
		w.Row("asked", "%s passes, if what it has inside does", asked)
	case len(b.Harmless) == 0:
		w.Row("asked", "%s is refused: no method of it is the route's", text.Clean(b.Path))
	}
	if len(b.Query) > 0 {
		w.Row("parameters", "%s; no other passes", strings.Join(b.Query, ", "))
	}
	if len(b.Harmless) > 0 {
		w.Row("harmless", "%s is refused, and does no harm: clients ask it at their start, and do without", strings.Join(b.Harmless, ", "))
	}
}
