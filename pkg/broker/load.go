package broker

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/agent-init/agent-init/pkg/broker/onward"
	"github.com/agent-init/agent-init/pkg/broker/registry"
	"github.com/agent-init/agent-init/pkg/route"
)

// way is a route that is served.
type way struct {
	route route.Route
	goal                  // the route's own
	other map[string]goal // by the To of its endpoints

	registry *registry.Registry // nil: it leads to none
}

// goal is where a request goes, and what is put on it there.
type goal struct {
	prefix string // of the path at the server
	up     *upstream
	key    onward.Credential
	add    []route.Header
}

// to is where an endpoint with this To leads. Nothing of the route's own is put on for another server than the route's.
func (w *way) to(to string) goal {
	if to == "" {
		return w.goal
	}
	return w.other[to]
}

// table is what serves at a time. A request keeps that of its beginning, for as long as each later one allows it.
type table map[string]*way

// Load serves l from now on. Requests under way that l does not allow end, and so do the connections of hosts that no
// route leads to any more. With an error all stays as it was.
func (p *Proxy) Load(l Loaded) error {
	p.loading.Lock()
	defer p.loading.Unlock()
	old := p.flows.Policy()
	next := make(table, len(l.Routes))
	ups := map[place]*upstream{}
	for _, r := range served(l.Routes) {
		w, err := p.newWay(r, &l, old, ups)
		if err == nil && next[r.Name] != nil {
			err = fmt.Errorf("there are two of this name")
		}
		if err != nil {
			return fmt.Errorf("route %s: %w", r.Name, err)
		}
		next[r.Name] = w
	}
	if err := p.loadInspected(l); err != nil {
		return err
	}
	p.flows.Load(next)
	p.retire(old, ups)
	return nil
}

// retire ends what goes to places that are none any more. With other roots, or another way out, what goes on in the old one may end.
func (p *Proxy) retire(old table, now map[place]*upstream) {
	for _, u := range old.upstreams() {
		p.retired[u] = struct{}{}
	}
	for u := range p.retired {
		switch next := now[u.place]; {
		case next == u:
			delete(p.retired, u)
		case next == nil:
			u.close()
			delete(p.retired, u)
		default:
			if u.transport.CloseIdleConnections(); u.idle() {
				delete(p.retired, u)
			}
		}
	}
}

// newWay makes a way, over connections to the same places that there are already.
func (p *Proxy) newWay(r route.Route, l *Loaded, old table, ups map[place]*upstream) (*way, error) {
	w := &way{route: r, other: map[string]goal{}}
	var err error
	if w.goal, err = p.newGoal(r.To, l, old, ups); err != nil {
		return nil, err
	}
	for _, e := range r.Endpoints {
		if e.To == "" {
			continue
		}
		if w.other[e.To], err = p.newGoal(e.To, l, old, ups); err != nil {
			return nil, fmt.Errorf("%s %s: %w", e.Method, e.Path, err)
		}
	}
	if w.key, err = onward.NewCredential(&w.route, l.Credentials[r.Name]); err != nil {
		return nil, err
	}
	if w.up.place.scheme == "http" && w.key.Secret() && !r.Plaintext {
		return nil, fmt.Errorf("its credential would go over plain http")
	}
	w.add = r.Add
	if r.Packages.Registry != "" {
		w.registry = registry.New(&w.route)
	}
	return w, nil
}

// newGoal reads where a route or an endpoint leads to.
func (p *Proxy) newGoal(leads string, l *Loaded, old table, ups map[place]*upstream) (goal, error) {
	u, err := url.Parse(leads)
	if err != nil {
		return goal{}, fmt.Errorf("it leads to no address")
	}
	to, err := placeOf(u)
	if err != nil {
		return goal{}, err
	}
	if ups[to] == nil {
		if before := old.upstreams()[to]; before != nil && before.roots.Equal(l.Roots) && before.by == l.By {
			ups[to] = before
		} else {
			ups[to] = newUpstream(to, l.Roots, l.By, p.config.Dial)
		}
	}
	return goal{prefix: strings.TrimSuffix(u.EscapedPath(), "/"), up: ups[to]}, nil
}

// upstreams are those that a table uses.
func (t table) upstreams() map[place]*upstream {
	all := map[place]*upstream{}
	for _, w := range t {
		all[w.up.place] = w.up
		for _, g := range w.other {
			all[g.up.place] = g.up
		}
	}
	return all
}
