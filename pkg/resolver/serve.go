package resolver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/budget"
)

// Serve answers queries on the sockets, which it closes in the end: when parent is
// done, which is no error, or when one of them fails. It is called once.
func (s *Server) Serve(parent context.Context, packets []net.PacketConn, streams []net.Listener) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var readers sync.WaitGroup
	var closers []io.Closer
	start := func(on net.Addr, c io.Closer, run func() error) {
		closers = append(closers, c)
		readers.Go(func() { cancel(fmt.Errorf("resolver: serving DNS on %v: %w", on, run())) })
	}
	for _, c := range packets {
		start(c.LocalAddr(), c, func() error { return s.serveUDP(c.(*net.UDPConn)) })
	}
	for _, l := range streams {
		pool := &pool{most: s.limits.conns}
		closers = append(closers, pool)
		start(l.Addr(), l, func() error {
			return budget.Accept(ctx, l, s.config.Log, func(conn net.Conn) {
				c := pool.add(conn)
				s.work.Go(func() {
					defer pool.remove(c)
					s.serveConn(c)
				})
			})
		})
	}
	<-ctx.Done()
	s.mu.Lock()
	s.finished = true
	s.mu.Unlock()
	s.end()
	for _, c := range closers {
		c.Close()
	}
	readers.Wait()
	s.work.Wait()
	if parent.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// serveUDP answers queries from conn, all that are there at a time. The replies leave by that socket too, so that the
// kernel undoes the redirection that brought the queries here.
func (s *Server) serveUDP(conn *net.UDPConn) error {
	b := newBatch(conn)
	instead := s.insteadAt(conn.LocalAddr())
	out := make([][2 * maxUDPReply]byte, batchSize)
	const most = 100 // failures in a row: then it counts as broken
	failures := 0
	for {
		n, err := b.read()
		if err != nil {
			if failures++; errors.Is(err, net.ErrClosed) || failures > most {
				return err
			}
			continue
		}
		failures = 0
		for i := range n {
			if reply, _ := s.handle(b.query(i), out[i][:], client{conn: conn, from: b.client(i), instead: instead}); reply != nil {
				b.reply(i, reply)
			}
		}
		b.write()
	}
}

// maxQuery is how long a query may be: far more than a name and options are.
const maxQuery = 4096

// serveConn answers the queries of one connection in their order (RFC 7766).
func (s *Server) serveConn(conn *stream) {
	last := time.Now().Add(s.limits.lifetime)
	in := make([]byte, maxQuery)
	framed := dns.Conn{Conn: conn}
	answers := make(chan []byte, 1)
	for range s.limits.queries {
		deadline := time.Now().Add(s.limits.idle)
		if deadline.After(last) {
			deadline = last
		}
		conn.SetDeadline(deadline)
		n, err := framed.Read(in)
		if err != nil {
			return
		}
		reply, later := s.handle(in[:n], nil, client{answers: answers, instead: s.insteadAt(conn.LocalAddr())})
		if later {
			select {
			case reply = <-answers: // every lookup ends within its budget
			case <-conn.gone:
				return
			}
		}
		if reply == nil {
			return
		}
		conn.SetWriteDeadline(time.Now().Add(s.limits.idle))
		if _, err := framed.Write(reply); err != nil {
			return
		}
	}
}

// pool holds the open connections, oldest first. When it is full the oldest
// makes room: a client that has a question is served long before it is that.
type pool struct {
	mu    sync.Mutex
	most  int // 0 once it is closed
	conns []*stream
}

// stream is a connection, and whether it has made room: its question may take long to be answered.
type stream struct {
	net.Conn
	gone chan struct{} // closed then
}

func (p *pool) add(conn net.Conn) *stream {
	c := &stream{conn, make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, c)
	if len(p.conns) > p.most {
		p.conns[0].Close()
		close(p.conns[0].gone)
		p.conns = slices.Delete(p.conns, 0, 1)
	}
	return c
}

func (p *pool) remove(c *stream) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = slices.DeleteFunc(p.conns, func(o *stream) bool { return o == c })
}

// Close closes every connection, and those to come.
func (p *pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.most, p.conns = 0, nil
	return nil
}
