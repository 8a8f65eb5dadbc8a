package broker

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"

	"github.com/agent-init/agent-init/pkg/route"
)

// way is a route that is served.
type way struct {
	route  route.Route
	prefix string // of the path at the server
	up     *upstream
	key    credential
}

// table is what serves at a time. A request keeps that of its beginning.
type table map[string]*way

// Load serves l from now on. Requests under way keep what they began with. Those of hosts that no route leads to any
// more end, and their connections are closed. With an error all stays as it was.
func (p *Proxy) Load(l Loaded) error {
	p.loading.Lock()
	defer p.loading.Unlock()
	old := *p.table.Load()
	next := make(table, len(l.Routes))
	ups := map[place]*upstream{}
	for _, r := range l.Routes {
		w, err := p.newWay(r, l.Credentials[r.Name], l.Roots, old, ups)
		if err == nil && next[r.Name] != nil {
			err = fmt.Errorf("there are two of this name")
		}
		if err != nil {
			return fmt.Errorf("route %s: %w", r.Name, err)
		}
		next[r.Name] = w
	}
	p.table.Store(&next)
	p.retire(old, ups)
	return nil
}

// retire ends what goes to places that are none any more. With other roots, what goes on under the old ones may end.
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

// newWay makes a way, over connections to the same place that there are already.
func (p *Proxy) newWay(
	r route.Route, secret []byte, roots *x509.CertPool, old table, ups map[place]*upstream,
) (*way, error) {
	u, err := url.Parse(r.To)
	if err != nil {
		return nil, fmt.Errorf("it leads to no address")
	}
	to, err := placeOf(u)
	if err != nil {
		return nil, err
	}
	w := &way{route: r, prefix: strings.TrimSuffix(u.EscapedPath(), "/")}
	if w.key, err = newCredential(&w.route, secret); err != nil {
		return nil, err
	}
	if to.scheme == "http" && w.key.secret != "" && !r.Plaintext {
		return nil, fmt.Errorf("its credential would go over plain http")
	}
	if ups[to] == nil {
		if before := old.upstreams()[to]; before != nil && before.roots.Equal(roots) {
			ups[to] = before
		} else {
			ups[to] = newUpstream(to, roots, p.config.Dial)
		}
	}
	w.up = ups[to]
	return w, nil
}

// upstreams are those that a table uses.
func (t table) upstreams() map[place]*upstream {
	all := map[place]*upstream{}
	for _, w := range t {
		all[w.up.place] = w.up
	}
	return all
}
