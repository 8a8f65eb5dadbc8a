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
		if w := &p.routes[i]; w.host.Target() == host && (port == Port{} || w.has(port)) {
			to = append(to, w.entry())
		}
	}
	return to
}

// brokered says whether a present route has a port of a host, which is canonical.
func (p *Policy) brokered(host string, port Port) bool {
	for i := range p.routes {
		if w := &p.routes[i]; !w.absent && w.host.Target() == host && w.has(port) {
			return true
		}
	}
	return false
}

// has says whether a port of the host is the broker's alone. A provider may serve its API on any; of one's own servers,
// the other ports are other servers. The same one over UDP is HTTP/3 of the same server.
func (w *written) has(port Port) bool {
	own := w.host.Private || w.host.Name == "" || !strings.Contains(w.host.Name, ".")
	return !own || port.Number == w.host.Ports[0].Number
}

// Beside are the present routes whose hosts an entry, given by itself, would let the agent reach without the broker.
func (p *Policy) Beside(entry string, presets fs.FS) (to []RouteEntry) {
	if p.Broker == nil {
		return nil
	}
	alone, err := Parse(&Bundle{Files: []File{{Data: []byte(entry)}}}, presets)
	if err != nil {
		return nil
	}
	for i := range p.routes {
		opened := alone.besides(&p.routes[i])
		if !p.routes[i].absent && slices.ContainsFunc(opened, func(r *Rule) bool { return !r.Unbrokered }) {
			to = append(to, p.routes[i].entry())
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
	_, f := parseTo(r.To, &w.host)
	w.locate()
	return w, f
}

// locate completes the entry for the host.
func (w *written) locate() {
	w.host.Private = w.Private && w.host.Name != ""
	w.host.Source, w.host.Text = w.at[""], w.host.String()
}

// goes says whether r is about the host of w.
func (r *Rule) goes(w *written) bool {
	switch {
	case w.host.Name == "":
		return r.Prefix.IsValid() && r.Prefix.Contains(w.host.Prefix.Addr())
	case r.Wildcard:
		return r.Name == w.host.Name || strings.HasSuffix(w.host.Name, "."+r.Name)
	}
	return r.Name == w.host.Name
}

// routed takes over the routes whose credential is there, and leaves out the entries that count only without them.
func (p *Policy) routed(ps *parser) {
	own := &Policy{Settings: p.Settings, hosts: p.hosts}
	p.routes = ps.routes
	for i := range p.routes {
		if w := &p.routes[i]; w.Optional && slices.Contains(ps.absent, w.Name) {
			w.absent = true
			p.AbsentRoutes = append(p.AbsentRoutes, w.Name)
		}
	}
	p.shareVariables(ps)
	for i := range p.routes {
		w := &p.routes[i]
		if w.absent {
			continue
		}
		p.Settings.Broker = append(p.Settings.Broker, w.Route)
		own.rules = append(own.rules, &w.host)
		if w.Refreshes() && w.LoginHost != "" {
			own.rules = append(own.rules, &Rule{Source: w.at[""], Text: w.LoginHost, Name: w.LoginHost, Ports: []Port{{TCP, 443}}})
		}
	}
	if own.rules == nil {
		return
	}
	p.rules = slices.DeleteFunc(p.rules, func(r *Rule) bool {
		return r.Unbrokered && slices.ContainsFunc(p.routes, func(w written) bool { return !w.absent && r.goes(&w) })
	})
	own.index()
	p.Broker = own
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
		for _, r := range p.besides(w) {
			remedy := "take this entry out, or write unbrokered behind it"
			if host := w.host.Target(); r.Preset != "" || r.Target() != host {
				remedy = fmt.Sprintf("deny it (!%s), or write unbrokered behind this entry", host)
			}
			ps.errs.add(Error{Source: r.Source, Text: r.Text, Message: w.host.Target() + " is reached through the broker alone, by " + route + ": " + remedy})
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

// besides are the entries by which the agent would reach the host of w by itself.
func (p *Policy) besides(w *written) (rules []*Rule) {
	add := func(r *Rule, port Port) {
		if w.has(port) && !slices.Contains(rules, r) {
			rules = append(rules, r)
		}
	}
	if w.host.Name != "" {
		for _, port := range p.Ports(w.host.Name) {
			add(p.allow.find(w.host.Name, port), port)
		}
		return rules
	}
	a := w.host.Prefix.Addr()
	for _, s := range p.Static {
		if d := p.DecideAddr(a, s.Port); s.Prefix.Contains(a) && d.Allowed {
			add(d.Rule, s.Port)
		}
	}
	return rules
}
