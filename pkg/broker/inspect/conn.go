package inspect

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/pkg/broker/linger"
	"github.com/agent-init/agent-init/pkg/broker/room"
)

// conn is one connection of a client's.
type conn struct {
	net.Conn
	place
	of  *Server
	uid uint32

	read     []byte       // by the gate, and not by us
	written  atomic.Int64 // bytes
	shaken   int64        // of these, those of the handshake
	alert    uint8        // of TLS, if the last that was read is one in the clear
	requests atomic.Int64
	back     atomic.Int64 // requests that the client took back
	settled  atomic.Bool  // somebody has recorded how it ended
	unread   atomic.Bool  // the client may be sending what nobody reads
	speaks   string       // the protocol that the client has chosen
	once     sync.Once
	head     *room.Coming // over HTTP/1

	under int       // requests under way; belongs to of.mu
	since time.Time // when there were none for the first time; likewise
}

// maxConns are all connections of clients at once, and maxOfUser those of one user, so that one of several leaves room for
// the others. A connection without a request gives its place to the next one.
const (
	maxConns  = 1024
	maxOfUser = maxConns / 4 * 3
)

// newConn counts a connection, nil if there are too many, or none is wanted any more.
func (s *Server) newConn(h Handed) *conn {
	c := &conn{
		Conn: h.Conn, place: place{strings.ToLower(strings.TrimSuffix(h.Name, ".")), h.To.Port()}, of: s, uid: h.UID, read: h.Read,
		since: time.Now(),
	}
	c.head = s.config.Room.Coming(func() {
		c.record(full)
		c.Close()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || (len(s.conns) >= maxConns || s.users[c.uid].conns >= maxOfUser) && !s.makeRoom(c.uid) {
		return nil
	}
	s.conns[c] = struct{}{}
	s.uses(c.uid, 1, 0)
	s.all.Add(1)
	return c
}

// makeRoom closes the connection of a user that has been without a request for longest, and says whether there is one.
// Its caller holds s.mu.
func (s *Server) makeRoom(uid uint32) bool {
	var found *conn
	for c := range s.conns {
		if c.uid == uid && c.under == 0 && (found == nil || c.since.Before(found.since)) {
			found = c
		}
	}
	if found == nil {
		return false
	}
	s.forget(found)
	go func() {
		found.record(crowded)
		found.Close()
	}()
	return true
}

// crowded is why a connection is closed that another takes the place of.
var crowded = refusal("busy", "too many connections to inspected names at once, and this one had no request for longest")

// forget has c count no longer. Its caller holds s.mu.
func (s *Server) forget(c *conn) {
	if _, counts := s.conns[c]; counts {
		delete(s.conns, c)
		s.uses(c.uid, -1, 0)
	}
}

// use is what one user has.
type use struct{ conns, requests int }

// uses counts what a user has more. Its caller holds s.mu.
func (s *Server) uses(uid uint32, conns, requests int) {
	u := s.users[uid]
	u.conns, u.requests = u.conns+conns, u.requests+requests
	if s.users[uid] = u; u == (use{}) {
		delete(s.users, uid)
	}
}

func (c *conn) Read(b []byte) (n int, err error) {
	if len(c.read) > 0 {
		n = copy(b, c.read)
		if c.read = c.read[n:]; len(c.read) == 0 {
			c.read = nil
		}
	} else {
		n, err = c.Conn.Read(b)
	}
	if c.shaken == 0 {
		c.alert = alertIn(b[:n])
	}
	if full := c.head.Came(c.of.ctx, n); full != nil {
		return 0, full
	}
	return n, err
}

// alertIn is the alert that what was read ends with (RFC 8446, section 6), or 0. OpenSSL has no keys yet when it looks at
// a certificate of TLS 1.3, so it refuses one in the clear. To crypto/tls that is a record with a wrong sum.
func alertIn(read []byte) uint8 {
	if n := len(read); n >= 7 && string(read[n-7:n-5]) == "\x15\x03" && string(read[n-4:n-1]) == "\x00\x02\x02" {
		return read[n-1]
	}
	return 0
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

// goodbye is more than a connection's end takes in TLS, and less than what net/http says to what is no request.
const goodbye = 64

// Close closes it, and records a connection that had no request.
func (c *conn) Close() error {
	if c.unread.Swap(false) {
		linger.Over(c.of.ctx, c.Conn)
	}
	err := c.Conn.Close()
	c.head.Over()
	c.once.Do(func() {
		c.of.mu.Lock()
		c.of.forget(c)
		ended := c.of.ended
		c.of.mu.Unlock()
		if c.requests.Load() == 0 && !ended && !c.settled.Load() {
			n := refusal(gone, "the client closed the connection before it asked for anything, as one does that "+
				"pins a certificate")
			if c.speaks != "h2" && c.written.Load()-c.shaken > goodbye {
				n = refusal("protocol", "what the client sent is no request of HTTP/1.1 or HTTP/2; it goes nowhere")
			}
			c.record(n)
		}
		c.of.all.Done()
	})
	return err
}

// maxTakenBack are requests that a client may take back before they are answered, beside as many that it waits for.
const maxTakenBack = 256

// takenBack ends a connection that has servers begin what nobody waits for (rapid reset, CVE-2023-44487).
func (c *conn) takenBack() {
	if back := c.back.Add(1); back > maxTakenBack && 2*back > c.requests.Load() {
		go c.Close() // it may wait for its client to read
	}
}

// record tells of a connection without a request.
func (c *conn) record(n *no) {
	if c.settled.Swap(true) || c.of.ctx.Err() != nil {
		return
	}
	c.of.config.Record(Event{Name: c.name, Port: c.port, UID: c.uid, Refused: n.What + ": " + n.Text})
}
