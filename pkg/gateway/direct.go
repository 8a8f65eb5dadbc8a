package gateway

import "context"

// direct decides whether c may pass by its address alone. If not, the name inside it
// decides, on ports where there is one; on others c is refused.
func (c *conn) direct(ctx context.Context) (ruling, bool) {
	if c.s.config.Direct == nil {
		return ruling{}, false
	}
	// Like a name, the address is claimed before it is judged.
	u := use{to: c.to}
	c.claim(u)
	r := permit(c.s.config.Policy(), u)
	hidden := c.to.Port() == tlsPort || c.to.Port() == webPort
	if !r.allowed && hidden {
		c.unclaim(0)
		return ruling{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, c.s.limits.held)
	defer cancel()
	name, ok, err := c.s.config.Direct(ctx, c.to)
	switch {
	case err != nil:
		c.s.config.Log.Warn("the name gate can't ask about an address", "error", err)
		return ruling{port: c.to.Port(), why: refusedKeeper}, true
	case !ok && r.allowed: // by a policy that is not in force any more
		r = r.no(refusedRevoked)
	case !ok:
	case name != "":
		c.unclaim(0)
		u.name = name
		c.claim(u)
		r = permit(c.s.config.Policy(), u)
	}
	return r, true
}

// serveDirect relays a connection that nobody looks into.
func (c *conn) serveDirect(ctx context.Context, r ruling) error {
	c.s.conns.judged(c)
	server, err := c.connect(ctx, r)
	if err != nil {
		return err
	}
	up, down := c.toServer(), c.toClient()
	c.relay(server,
		func() error { return c.from.forward(up, untilEnd) },
		func() error { return server.forward(down, untilEnd) })
	return nil
}
