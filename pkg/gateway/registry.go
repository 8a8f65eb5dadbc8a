package gateway

import (
	"container/list"
	"sync"
)

// registry knows the connections that are open, and which of them have not been
// judged yet, in the order in which they came.
type registry struct {
	mu       sync.Mutex
	open     map[*conn]struct{}
	sniffing list.List // of *conn, oldest first
	closed   bool
}

// add takes c in, unless there are too many. If too many have not been judged,
// the oldest of those is returned, to be ended by the caller: a client that
// says nothing costs only others that say nothing either.
func (r *registry) add(c *conn, l Limits) (evicted *conn, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || len(r.open) >= l.Connections {
		return nil, false
	}
	if r.sniffing.Len() >= l.Sniffing {
		evicted = r.sniffing.Remove(r.sniffing.Front()).(*conn)
		evicted.sniffing = nil
	}
	r.open[c] = struct{}{}
	c.sniffing = r.sniffing.PushBack(c)
	return evicted, true
}

// judged takes c off the list of those that wait to be judged.
func (r *registry) judged(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unlist(c)
}

func (r *registry) unlist(c *conn) {
	if c.sniffing != nil {
		r.sniffing.Remove(c.sniffing)
		c.sniffing = nil
	}
}

func (r *registry) remove(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unlist(c)
	delete(r.open, c)
}

// all returns the connections that are open now.
func (r *registry) all() []*conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	conns := make([]*conn, 0, len(r.open))
	for c := range r.open {
		conns = append(conns, c)
	}
	return conns
}

// shut is all, and takes no more connections from then on.
func (r *registry) shut() []*conn {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	return r.all()
}

func (r *registry) count() (open, sniffing int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open), r.sniffing.Len()
}
