package policy

import (
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/pkg/route"
)

// Routes are those of the broker that files name, in file order, present or not.
func (p *Policy) Routes() []route.Route {
	all := make([]route.Route, len(p.routes))
	for i, w := range p.routes {
		all[i] = w.Route
	}
	return all
}

// Brokered are the routes to a host, a name or an address, in file order, present or not. The zero port is any.
func (p *Policy) Brokered(host string, port Port) (to []RouteEntry) {
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.WithZone("").Unmap().String()
	} else {
		host, _ = canonical(host)
	}
	for i := range p.routes {
		if w := &p.routes[i]; w.reaches(host, port) {
			to = append(to, w.entry())
		}
	}
	return to
}

// brokered says whether a present route has a port of a host, which is canonical.
func (p *Policy) brokered(host string, port Port) bool {
	return slices.ContainsFunc(p.routes, func(w written) bool { return !w.absent && w.reaches(host, port) })
}

// reaches says whether the route goes to a host, which is canonical, on a port. The zero port is any.
func (w *written) reaches(host string, port Port) bool {
	return slices.ContainsFunc(w.hosts, func(h *Rule) bool { return h.Target() == host && (port == Port{} || h.alone(port)) })
}

// alone says whether a port of the host of a route is the broker's alone. A provider may serve its API on any; of one's
// own servers, the other ports are other servers. The same one over UDP is HTTP/3 of the same server.
func (r *Rule) alone(port Port) bool {
	own := r.Private || r.Name == "" || !strings.Contains(r.Name, ".")
	return !own || port.Number == r.Ports[0].Number
}

// Beside are the present routes whose hosts an entry, given by itself, would let the agent reach without the broker.
func (p *Policy) Beside(entry string, presets fs.FS) (to []RouteEntry) {
	if len(p.Settings.Broker) == 0 {
		return nil
	}
	alone, err := Parse(&Bundle{Files: []File{{Data: []byte(entry)}}}, presets)
	if err != nil {
		return nil
	}
	for i := range p.routes {
		w := &p.routes[i]
		opens := func(h *Rule) bool {
			return slices.ContainsFunc(alone.besides(h), func(r *Rule) bool { return !r.Unbrokered })
		}
		if !w.absent && slices.ContainsFunc(w.hosts, opens) {
			to = append(to, w.entry())
		}
	}
	return to
}

// RouteEntry is a route in a form that Rebuild reads.
type RouteEntry struct {
	route.Route
	Source string `json:"source"`
	Absent bool   `json:"absent,omitempty"` // its credential is
}

func (w *written) entry() RouteEntry { return RouteEntry{w.Route, w.at[""].String(), w.absent} }

// RouteEntries are all routes so that Rebuild reads them.
func (p *Policy) RouteEntries() (all []RouteEntry) {
	for i := range p.routes {
		all = append(all, p.routes[i].entry())
	}
	return all
}

// rebuilt is the route that r is.
func rebuilt(r RouteEntry) (written, *fault) {
	w := written{Route: r.Route, at: map[string]Source{"": {File: r.Source}}}
	return w, w.locate()
}

// locate completes the entries for the hosts. A route with inspect has none: what it puts on goes where the agent goes.
func (w *written) locate() *fault {
	if w.Inspects != "" {
		return nil
	}
	urls := []string{w.To}
	for _, e := range w.Endpoints {
		if e.To != "" && !slices.Contains(urls, e.To) {
			urls = append(urls, e.To)
		}
	}
	for _, to := range urls {
		h := &Rule{Source: w.at[""], routes: true}
		if _, f := parseTo(to, h); f != nil {
			return f
		}
		h.Private = w.Private && h.Name != ""
		h.Text = h.String()
		w.hosts = append(w.hosts, h)
	}
	return nil
}

// goes says whether r is about the host of a route.
func (r *Rule) goes(h *Rule) bool {
	switch {
	case h.Name == "":
		return r.Prefix.IsValid() && r.Prefix.Contains(h.Prefix.Addr())
	case r.Wildcard:
		return r.Name == h.Name || strings.HasSuffix(h.Name, "."+r.Name)
	}
	return r.Name == h.Name
}

// routed finds the routes whose credential is there, and leaves out the entries that count only without them.
func (p *Policy) routed(ps *parser) {
	p.routes = ps.routes
	for i := range p.routes {
		if w := &p.routes[i]; w.Optional && slices.Contains(ps.absent, w.Name) {
			w.absent = true
			p.AbsentRoutes = append(p.AbsentRoutes, w.Name)
		}
	}
	p.rules = slices.DeleteFunc(p.rules, func(r *Rule) bool {
		return r.Unbrokered && slices.ContainsFunc(p.routes, func(w written) bool { return !w.absent && slices.ContainsFunc(w.hosts, r.goes) })
	})
}

// brokers takes over the routes, and makes the broker's own policy.
func (p *Policy) brokers(ps *parser) {
	p.shareVariables(ps)
	for i := range p.routes {
		if w := &p.routes[i]; !w.absent {
			p.Settings.Broker = append(p.Settings.Broker, w.Route)
		}
	}
	own := &Policy{Settings: p.Settings, Resolv: p.Resolv, hosts: p.hosts, bound: p}
	for i := range p.routes {
		w := &p.routes[i]
		if w.absent {
			continue
		}
		own.rules = append(own.rules, w.hosts...)
		if w.Refreshes() && w.LoginHost != "" {
			own.rules = append(own.rules, &Rule{Source: w.at[""], Text: w.LoginHost, Name: w.LoginHost, Ports: httpsPorts, routes: true})
		}
	}
	ps.checkApprovals()
	for _, host := range []*Rule{ps.webhook(p.Settings.Notify.Webhook), p.proxyRule(ps)} {
		if host != nil {
			own.rules = append(own.rules, host)
		}
	}
	for _, r := range p.rules {
		if r.Inspects() && !r.Deny {
			own.rules = append(own.rules, r)
		}
	}
	if own.rules != nil {
		own.index()
		p.Broker = own
	}
}

// shareVariables gives each variable of the agent's to one route: that which files name it for, else the first one.
func (p *Policy) shareVariables(ps *parser) {
	owner := map[string]string{}
	for _, w := range p.routes {
		for _, name := range slices.Sorted(maps.Keys(w.env)) {
			if other := owner[name]; other != "" && !w.absent {
				ps.errs.add(Error{Source: w.place("env." + name), Text: name, Message: "the route " + other + " sets this variable already: take it out of one of them"})
			} else if !w.absent {
				owner[name] = w.Name
			}
		}
	}
	for _, w := range p.routes {
		for name := range w.Env {
			switch other := owner[name]; {
			case w.absent:
			case other == "":
				owner[name] = w.Name
			case other != w.Name:
				delete(w.Env, name)
			}
		}
	}
}

// unambiguous finds what is reached through the broker and in another way, too.
func (p *Policy) unambiguous(ps *parser) {
	for i := range p.routes {
		w := &p.routes[i]
		if w.absent {
			continue
		}
		route := fmt.Sprintf("the route %s (%v)", w.Name, w.at[""])
		for _, h := range w.hosts {
			for _, r := range p.besides(h) {
				remedy := "take this entry out, or write unbrokered behind it"
				if r.Preset != "" || r.Target() != h.Target() {
					remedy = fmt.Sprintf("deny it (!%s), or write unbrokered behind this entry", h.Target())
				}
				ps.errs.add(Error{Source: r.Source, Text: r.Text, Message: h.Target() + " is reached through the broker alone, by " + route + ": " + remedy})
			}
		}
		for _, name := range w.variables() {
			if src, ok := ps.set["env."+name]; ok {
				ps.errs.add(Error{Source: src, Text: name, Message: "this variable is set by " + route + ": take it out of env"})
			}
		}
	}
}

// variables are those of the agent's environment that the route sets, or takes out.
func (w *written) variables() []string {
	var all []string
	for name := range w.Env {
		all = append(all, name)
	}
	usual, _ := route.Builtin(w.Name)
	for _, s := range slices.Concat(w.Credential, usual.Credential) {
		if s.Env != "" {
			all = append(all, s.Env)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// besides are the entries by which the agent would reach the host of a route by itself.
func (p *Policy) besides(h *Rule) (rules []*Rule) {
	add := func(r *Rule, port Port) {
		if h.alone(port) && !slices.Contains(rules, r) {
			rules = append(rules, r)
		}
	}
	if h.Name != "" {
		for _, name := range append(p.Meant(h.Name), h.Name) {
			name, _ = p.canonical(name)
			for _, port := range p.Ports(name) {
				add(p.allow.find(name, port), port)
			}
		}
		return rules
	}
	a := h.Prefix.Addr()
	for _, s := range p.Static {
		if d := p.DecideAddr(a, s.Port); s.Prefix.Contains(a) && d.Allowed {
			add(d.Rule, s.Port)
		}
	}
	return rules
}
