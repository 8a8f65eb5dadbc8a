package room

import (
	"context"
	"net/http"
	"sync"
)

// ofField is what a field of a head takes beside its bytes: its place in a map, and a slice for its values.
const ofField = 128

// Head is what the head of a request takes.
func Head(r *http.Request) int64 {
	size := len(r.RequestURI)
	for name, values := range r.Header {
		for _, v := range values {
			size += len(name) + len(v) + ofField
		}
	}
	return int64(size)
}

// perByte is what net/http makes at most of a byte of a head that it reads: a field has four bytes at least.
const perByte = 32

// Coming is the head that a connection of HTTP/1 waits for. It takes room as it comes, before anybody knows what is in it.
type Coming struct {
	room *Room
	end  func()

	mu   sync.Mutex
	hold *Hold // nil: no head is to come
}

// Coming begins with no head. end is that of a hold.
func (r *Room) Coming(end func()) *Coming { return &Coming{room: r, end: end} }

// Begin says that what comes next is a head.
func (c *Coming) Begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hold == nil {
		c.hold = c.room.Hold(c.end)
	}
}

// Came takes the room for n bytes, if they are a head's.
func (c *Coming) Came(ctx context.Context, n int) error {
	c.mu.Lock()
	hold := c.hold
	c.mu.Unlock()
	if hold == nil {
		return nil
	}
	return hold.Take(ctx, int64(n)*perByte)
}

// Waits says whether a head is to come, or is not whole.
func (c *Coming) Waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hold != nil
}

// Over says that the head has come, or that none will.
func (c *Coming) Over() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hold != nil {
		c.hold.End()
		c.hold = nil
	}
}
