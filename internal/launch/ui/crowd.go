package ui

import (
	"context"
	"net"
	"slices"
	"sync"
)

// The most connections at a time. Every user of the machine can reach the port: without a bound, one of them could use
// up the memory and the files of the person whose page it is.
const (
	maxStrangers = 64
	maxFriends   = 64
)

// crowd is a listener that has room for friends: connections on which somebody with a pass has asked. Where strangers
// fill the rest, the one that has been here longest makes room for the next. A person who comes in always gets a turn.
type crowd struct {
	net.Listener
	mu        sync.Mutex
	strangers []*guest // oldest first
	friends   int
}

// guest is a connection of the crowd.
type guest struct {
	net.Conn
	of     *crowd
	friend bool
	once   sync.Once
}

// Accept takes the next connection.
func (c *crowd) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &guest{Conn: conn, of: c}
	if oldest := c.admit(g); oldest != nil {
		oldest.Close()
	}
	return g, nil
}

func (c *crowd) admit(g *guest) (oldest *guest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.strangers) >= maxStrangers {
		oldest, c.strangers = c.strangers[0], c.strangers[1:]
	}
	c.strangers = append(c.strangers, g)
	return oldest
}

// Close ends the connection, and makes room.
func (g *guest) Close() error {
	g.once.Do(func() {
		g.of.mu.Lock()
		defer g.of.mu.Unlock()
		if g.friend {
			g.of.friends--
		}
		g.of.strangers = slices.DeleteFunc(g.of.strangers, func(h *guest) bool { return h == g })
	})
	return g.Conn.Close()
}

// befriend keeps the connection from making room for others, if there are not too many friends.
func (g *guest) befriend() {
	g.of.mu.Lock()
	defer g.of.mu.Unlock()
	i := slices.Index(g.of.strangers, g)
	if i < 0 || g.of.friends >= maxFriends {
		return
	}
	g.of.strangers = slices.Delete(g.of.strangers, i, i+1)
	g.friend = true
	g.of.friends++
}

type guestKey struct{}

// withGuest lets handlers find the connection that a request came by (http.Server.ConnContext).
func withGuest(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, guestKey{}, conn)
}

func befriend(ctx context.Context) {
	if g, ok := ctx.Value(guestKey{}).(*guest); ok {
		g.befriend()
	}
}
