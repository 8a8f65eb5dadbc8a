package broker

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/pkg/broker/linger"
	"github.com/agent-init/agent-init/pkg/broker/room"
)

const (
	// maxConns are all connections of callers at once. The next ones wait in the kernel's backlog.
	maxConns = 2048

	// maxOfCaller are those of one user, so that one of several leaves room for the others. Who has asked for nothing gives
	// its place to the next one.
	maxOfCaller = 1536
)

// callers are the connections that there are, and whose.
type callers struct {
	Config
	free chan struct{}

	mu    sync.Mutex
	conns map[*caller]struct{}
	of    map[uint32]int // how many a user has
}

func newCallers(c Config) *callers {
	return &callers{Config: c, free: make(chan struct{}, maxConns), conns: map[*caller]struct{}{}, of: map[uint32]int{}}
}

// caller is one connection of a client. It carries one request: what follows that is read by nobody.
type caller struct {
	net.Conn
	ctx   context.Context // ends as the broker does
	all   *callers
	head  *room.Coming
	since time.Time

	once    sync.Once // asks whose it is, before the first byte is read
	refused error
	counted bool
	uid     uint32

	refusing atomic.Bool // it may be sending what nobody reads
}

var (
	errStranger = errors.New("not a user who may ask the broker")
	errCrowded  = errors.New("too many connections, and this one had asked for nothing for longest")
)

// listener is a net.Listener whose connections are callers.
type listener struct {
	net.Listener
	ctx context.Context
	all *callers
}

func (l listener) Accept() (net.Conn, error) {
	select {
	case l.all.free <- struct{}{}:
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.all.free
		return nil, err
	}
	c := &caller{Conn: conn, ctx: l.ctx, all: l.all, since: time.Now()}
	c.head = l.all.Room.Coming(func() { c.giveWay(room.ErrFull) })
	c.head.Begin()
	l.all.mu.Lock()
	l.all.conns[c] = struct{}{}
	l.all.mu.Unlock()
	return c, nil
}

// Read reads what a client sends, if it is one who may ask. Nothing of a stranger's is parsed.
func (c *caller) Read(b []byte) (int, error) {
	if c.once.Do(c.identify); c.refused != nil {
		return 0, c.refused
	}
	n, err := c.Conn.Read(b)
	if full := c.head.Came(c.ctx, n); full != nil {
		return 0, full
	}
	return n, err
}

// giveWay closes a connection whose head has not come.
func (c *caller) giveWay(why error) {
	c.all.Record(Event{Status: http.StatusServiceUnavailable, Refused: "busy: " + why.Error(), UID: c.uid})
	c.Close()
}

const strangerAnswer = "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nConnection: close\r\n" +
	"X-Should-Retry: false\r\n\r\n" +
	`{"error":{"message":"refused by agent-init: this user may not ask the broker, or has too many connections"}}`

// identify asks whose connection it is.
func (c *caller) identify() {
	if c.all.Owner == nil {
		return
	}
	uid, err := c.all.Owner(ends(c.Conn))
	if err == nil && (len(c.all.UIDs) == 0 || slices.Contains(c.all.UIDs, uid)) && c.count(uid) {
		return
	}
	c.refused = errStranger
	c.all.Record(Event{Status: http.StatusForbidden, Refused: "caller", UID: uid})
	c.Conn.Write([]byte(strangerAnswer))
}

// count takes one of the connections that a user may have, if need be that of the one that has asked for nothing for
// longest.
func (c *caller) count(uid uint32) bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if _, open := c.all.conns[c]; !open {
		return false
	}
	if c.all.of[uid] >= maxOfCaller {
		oldest := c.all.oldest(uid)
		if oldest == nil {
			return false
		}
		c.all.forget(oldest)
		go oldest.giveWay(errCrowded)
	}
	c.counted, c.uid = true, uid
	c.all.of[uid]++
	return true
}

// oldest is the oldest connection of a user whose request has not come, nil if there is none. Its caller holds a.mu.
func (a *callers) oldest(uid uint32) (found *caller) {
	for c := range a.conns {
		if c.counted && c.uid == uid && (found == nil || c.since.Before(found.since)) && c.head.Waits() {
			found = c
		}
	}
	return found
}

// forget makes room for another connection than c. Its caller holds a.mu.
func (a *callers) forget(c *caller) {
	if _, open := a.conns[c]; !open {
		return
	}
	delete(a.conns, c)
	if c.counted {
		if a.of[c.uid]--; a.of[c.uid] == 0 {
			delete(a.of, c.uid)
		}
	}
	<-a.free
}

// known says whether the kernel has said that it is one of those users who may ask.
func (c *caller) known() bool { return c.counted && len(c.all.UIDs) > 0 }

// Close closes it, and makes room for another.
func (c *caller) Close() error {
	if c.refusing.Swap(false) {
		linger.Over(c.ctx, c.Conn)
	}
	c.head.Over()
	c.all.mu.Lock()
	c.all.forget(c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// closeAll ends all connections.
func (a *callers) closeAll() {
	a.mu.Lock()
	conns := slices.Collect(maps.Keys(a.conns))
	a.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}
