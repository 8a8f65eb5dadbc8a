package gateway

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/agent-init/agent-init/internal/race"
	"github.com/agent-init/agent-init/pkg/policy"
)

// place finds where a connection goes on to that came to an address of this machine. That address says nothing of what
// the client wants, but for the port: the name inside says all. What the broker looks into, it finds by itself.
func (c *conn) place(ctx context.Context, r ruling) ruling {
	if !r.allowed || r.way == policy.Inspected {
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, c.s.limits.dial)
	defer cancel()
	addrs, err := c.s.config.Locate(ctx, r.name)
	if err != nil {
		c.s.config.Log.Info("the name gate finds no address", "name", r.name, "error", err)
	}
	c.places = c.admitted(r.name, addrs)
	switch {
	case len(c.places) == 0:
		return r.no(refusedNowhere)
	case r.proxied && c.s.config.Policy().Settings.UpstreamProxy.ByName: // which it is asked for once
		c.places = c.places[:1]
	}
	return r
}

// proxiedAfter is race.After by the upstream proxy, which may have far to go by itself.
const proxiedAfter = 2 * time.Second

// goOn connects to where the connection was going to, or to another address of the name. The kernel has accepted the
// connection for the gate, so the client believes that its address answers, and tries no other.
func (c *conn) goOn(ctx context.Context, r ruling) (conn *net.TCPConn, at netip.AddrPort, err error) {
	port := c.to.Port()
	run := race.Race[*net.TCPConn]{After: race.After, Room: c.s.room, Dial: func(ctx context.Context, a netip.Addr) (*net.TCPConn, error) {
		return c.onward(ctx, r, netip.AddrPortFrom(a, port))
	}}
	if r.proxied {
		run.After = proxiedAfter
	}
	first := c.to.Addr()
	switch {
	case c.own:
		first = c.places[0]
		run.Others = func(context.Context) []netip.Addr { return c.places }
	case r.enforce != "" || r.way != policy.Gated && r.via.name == "":
	case r.proxied && c.s.config.Policy().Settings.UpstreamProxy.ByName: // which would be asked for the same
	default:
		run.Others = func(ctx context.Context) []netip.Addr { return c.beside(ctx, r.leased()) }
	}
	conn, addr, err := run.Connect(ctx, first)
	return conn, netip.AddrPortFrom(addr, port), err
}

// leased is the name that the address is leased to.
func (r ruling) leased() string {
	if r.via.name != "" {
		return r.via.name
	}
	return r.name
}

// beside returns where else a connection to a name may go.
func (c *conn) beside(ctx context.Context, name string) []netip.Addr {
	if c.s.config.Beside == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.s.limits.held)
	defer cancel()
	addrs, err := c.s.config.Beside(ctx, name, c.to)
	if err != nil && ctx.Err() == nil {
		c.s.config.Log.Warn("the name gate can't ask for other addresses", "error", err)
	}
	return c.admitted(name, addrs)
}

// admitted are those of addrs that the policy lets name have on this port.
func (c *conn) admitted(name string, addrs []netip.Addr) []netip.Addr {
	p, port := c.s.config.Policy(), policy.Port{Proto: policy.TCP, Number: c.to.Port()}
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool {
		return slices.Contains(c.s.config.Own, a) || !slices.Contains(p.Admit(name, a), port)
	})
}

// moved notes that c goes on to at, and says whether the policy still lets it. From now on, that address is what each use
// is held against.
func (c *conn) moved(at netip.AddrPort, r ruling) bool {
	c.at, c.own, c.leased = at, false, []string{r.leased()}
	c.mu.Lock()
	for i := range c.uses {
		c.uses[i].to, c.uses[i].anywhere = at, false
	}
	c.mu.Unlock()
	return !slices.ContainsFunc(c.claims(), func(u use) bool { return !c.s.observe(c.permit(u)).allowed })
}
