package gateway

import (
	"cmp"
	"context"
	"net"
	"net/netip"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// Handed is a connection for the broker, which looks into it.
type Handed struct {
	Conn *net.TCPConn   // the client's
	Name string         // inside
	To   netip.AddrPort // the original destination
	Read []byte         // what was read of Conn, all of it
}

// handOver gives the connection away: a name that is inspected is reached by the broker alone. read is what was taken
// from the client, and is followed by what c.from holds.
func (c *conn) handOver(ctx context.Context, r ruling, read []byte) error {
	c.first = r
	switch {
	case c.s.config.Hand == nil:
		return refusedUnbrokered
	case !c.leave():
		return net.ErrClosed
	}
	c.look()
	ctx, cancel := context.WithTimeout(ctx, c.s.limits.hand)
	defer cancel()
	name := c.s.config.Policy().Lookup(r.name).Name // as the entry has it
	h := Handed{Conn: c.client, Name: cmp.Or(name, r.name), To: c.to, Read: append(read[:len(read):len(read)], c.from.held()...)}
	if err := c.s.config.Hand(ctx, h); err != nil {
		c.s.config.Log.Warn("the broker can't take a connection over", "error", err)
		c.findOut(c.s.config.Find)
		c.left(audit.Deny, refusedBroker.Error())
		abort(c.client)
		return nil
	}
	if !c.aside(r.name) {
		c.s.allowed.Add(1)
	}
	c.left(audit.Allow, "inspected by the broker")
	// The broker has the same socket: it is let go, and nothing is done to it.
	c.client.Close()
	return nil
}

// leave makes c one that nobody ends any more, unless it has ended: to reset a connection that is the broker's already
// would take away what that has sent.
func (c *conn) leave() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.over = true
	return true
}

func (c *conn) left(v audit.Verdict, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.result, c.reason, c.handed = v, reason, v == audit.Allow
}

// inspected says whether what is used by r is for the broker.
func (r ruling) inspected() bool { return r.allowed && r.way == policy.Inspected }
