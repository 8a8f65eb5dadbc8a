package gateway

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

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
	p, port := c.s.config.Policy(), policy.Port{Proto: policy.TCP, Number: c.to.Port()}
	c.places = slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool {
		return slices.Contains(c.s.config.Own, a) || !slices.Contains(p.Admit(r.name, a), port)
	})
	switch {
	case len(c.places) == 0:
		return r.no(refusedNowhere)
	case r.proxied && p.Settings.UpstreamProxy.ByName: // which it is asked for once
		c.places = c.places[:1]
	}
	return r
}

// goOn connects to where the connection was going to, or to the first of its places that answers.
func (c *conn) goOn(ctx context.Context, r ruling) (_ *net.TCPConn, err error) {
	if !c.own {
		return c.onward(ctx, r)
	}
	c.own = false
	each := max(time.Second, c.s.limits.dial/time.Duration(len(c.places)))
	if r.proxied { // it is the proxy that does not answer, whatever it is asked for
		each = c.s.limits.dial
	}
	for _, a := range c.places {
		c.to = netip.AddrPortFrom(a, c.to.Port())
		bounded, cancel := context.WithTimeout(ctx, each)
		conn, failed := c.onward(bounded, r)
		cancel()
		switch {
		case failed == nil:
			return conn, nil
		case ctx.Err() == nil || err == nil: // else what had no time left says less than the one before
			err = failed
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, err
}
