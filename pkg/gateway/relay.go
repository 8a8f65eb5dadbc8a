package gateway

import (
	"errors"
	"io"
	"net"
	"sync/atomic"

	"github.com/agent-init/agent-init/pkg/audit"
)

// relay passes bytes both ways, each in a goroutine of its own, and returns.
func (c *conn) relay(server *source, up, down func() error) {
	c.mu.Lock()
	c.users += 2
	c.mu.Unlock()
	go c.direction(up, c.from, c.server)
	go c.direction(down, server, c.client)
}

// direction runs one direction to its end. The end of the stream is passed on
// as such, and so is a reset.
func (c *conn) direction(run func() error, src *source, dst *net.TCPConn) {
	defer c.done()
	err := run()
	src.release()
	_, broken := errors.AsType[*writeError](err)
	no, denied := errors.AsType[denial](err)
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		if c.finish(dst) {
			src.awaitReset()
			c.end(audit.Allow, "closed") // which was under way
		}
	case broken:
		// What comes the other way may still be on its way.
		if c.breakOff() {
			if src.discard(func() {}) == io.EOF {
				dst.CloseWrite()
				src.awaitReset()
			}
			c.end(audit.Allow, "reset")
		}
	case denied:
		c.end(audit.Deny, no.Error())
	case late(err):
		c.end(audit.Deny, refusedTimeout.Error())
	default:
		c.end(audit.Allow, "reset")
	}
}

// finish passes the end of a stream on to dst. It returns true if the other
// direction is still open.
func (c *conn) finish(dst *net.TCPConn) bool {
	c.mu.Lock()
	c.ended++
	broken, both := c.broken, c.ended == 2
	c.mu.Unlock()
	switch {
	case broken:
		c.end(audit.Allow, "reset")
	case dst.CloseWrite() != nil:
		c.end(audit.Allow, how(both))
	case both:
		c.close(audit.Allow, "closed")
	default:
		return true
	}
	return false
}

// breakOff ends a direction whose destination takes no more. It returns true if
// the other direction is still open.
func (c *conn) breakOff() bool {
	c.mu.Lock()
	c.broken = true
	c.ended++
	both := c.ended == 2
	c.mu.Unlock()
	if both {
		c.end(audit.Allow, "closed")
	}
	return !both
}

// how names an end by reset: who said the last word before may take no answer.
func how(said bool) string {
	if said {
		return "closed"
	}
	return "reset"
}

// sink is one side of a conn to write to; what it takes is counted.
type sink struct {
	conn  *net.TCPConn
	owner *conn
	count *atomic.Int64
}

func (k *sink) Write(p []byte) (int, error) {
	n, err := k.conn.Write(p)
	k.moved(int64(n))
	return n, err
}

// ReadFrom lets the kernel splice.
func (k *sink) ReadFrom(r io.Reader) (int64, error) {
	n, err := k.conn.ReadFrom(r)
	k.moved(n)
	return n, err
}

func (k *sink) moved(n int64) {
	k.count.Add(n)
	k.owner.active.Store(k.owner.s.clock())
}

// toServer and toClient are where the two directions go.
func (c *conn) toServer() *sink { return &sink{c.server, c, &c.out} }
func (c *conn) toClient() *sink { return &sink{c.client, c, &c.in} }
