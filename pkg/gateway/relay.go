package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
)

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

// relay passes bytes both ways, each in a goroutine of its own, and returns: the one of the judging would keep its stack,
// which has grown.
func (c *conn) relay(server *source, up, down func() error) {
	c.mu.Lock()
	c.users += 2
	c.mu.Unlock()
	go c.direction(up, c.from, c.server)
	go c.direction(down, server, c.client)
}

// direction passes the end of the stream on as such, and so a reset.
func (c *conn) direction(run func() error, src *source, dst *net.TCPConn) {
	defer c.done()
	err := run()
	src.release()
	_, failed := errors.AsType[*writeError](err)
	no, denied := errors.AsType[denial](err)
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		both, broken := c.half(false)
		switch {
		case broken:
			c.end(audit.Allow, "reset")
		case dst.CloseWrite() != nil:
			c.end(audit.Allow, how[both])
		case both:
			c.close(audit.Allow, "closed")
		default:
			src.awaitReset()
			c.end(audit.Allow, "closed") // which was under way
		}
	case failed:
		// What comes the other way may still be on its way.
		both, _ := c.half(true)
		if !both && src.discard(func() {}) == io.EOF {
			dst.CloseWrite()
			src.awaitReset()
		}
		c.end(audit.Allow, how[both])
	case denied:
		c.end(audit.Deny, no.Error())
	case late(err):
		c.end(audit.Deny, refusedTimeout.Error())
	default:
		c.end(audit.Allow, "reset")
	}
}

// half notes the end of one direction, and whether its destination takes no more. It
// says whether both have ended, and whether one of them so.
func (c *conn) half(broken bool) (both, anyBroken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended++
	c.broken = c.broken || broken
	return c.ended == 2, c.broken
}

// how names an end by reset: who said the last word before may take no answer.
var how = map[bool]string{true: "closed", false: "reset"}

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
	k.owner.active.Store(int64(time.Since(k.owner.began)))
}

func (c *conn) toServer() *sink { return &sink{c.server, c, &c.out} }
func (c *conn) toClient() *sink { return &sink{c.client, c, &c.in} }
