package resolver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// Serve answers queries on the sockets, which it closes in the end: when ctx is
// done, which is no error, or when one of them fails. The packet connections are
// UDP sockets. Serve is called once.
func (s *Server) Serve(ctx context.Context, packets []net.PacketConn, streams []net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var errs []error
	var mu sync.Mutex
	var readers sync.WaitGroup
	start := func(what net.Addr, run func() error) {
		readers.Go(func() {
			err := run()
			if ctx.Err() == nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("resolver: serving DNS on %v: %w", what, err))
				mu.Unlock()
			}
			cancel()
		})
	}
	var closers []io.Closer
	for _, c := range packets {
		closers = append(closers, c)
		conn, ok := c.(*net.UDPConn)
		if !ok {
			start(c.LocalAddr(), func() error { return errors.New("not a UDP socket") })
			continue
		}
		start(c.LocalAddr(), func() error { return s.serveUDP(conn) })
	}
	for _, l := range streams {
		closers = append(closers, l)
		pool := newPool(s.config.Limits.TCPConns)
		closers = append(closers, pool)
		start(l.Addr(), func() error { return s.serveTCP(l, pool) })
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
	return errors.Join(errs...)
}

// maxReadErrors is how often in a row a socket may fail before it counts as broken.
const maxReadErrors = 100

// serveUDP answers queries from conn, all that are there at a time. The replies
// leave by that socket too, so that the kernel undoes the redirection that
// brought the queries here.
func (s *Server) serveUDP(conn *net.UDPConn) error {
	b, err := newBatch(conn)
	if err != nil {
		return err
	}
	scratches := make([]scratch, batchSize)
	for i := range scratches {
		scratches[i].out = make([]byte, 0, 2*maxUDPReply)
	}
	failures := 0
	for {
		n, err := b.read()
		if err != nil {
			if failures++; errors.Is(err, net.ErrClosed) || failures > maxReadErrors {
				return err
			}
			continue
		}
		failures = 0
		for i := range n {
			if reply, _ := s.handle(b.query(i), &scratches[i], client{conn: conn, from: b.client(i)}); reply != nil {
				b.reply(i, reply)
			}
		}
		if err := b.write(); err != nil {
			return err
		}
	}
}

// serveTCP accepts connections from l.
func (s *Server) serveTCP(l net.Listener, pool *pool) error {
	failures := 0
	for {
		conn, err := l.Accept()
		if err != nil {
			if failures++; errors.Is(err, net.ErrClosed) || failures > maxReadErrors && !scarce(err) {
				return err
			}
			time.Sleep(10 * time.Millisecond) // out of descriptors: some will be closed
			continue
		}
		failures = 0
		pool.add(conn)
		s.work.Go(func() {
			defer pool.remove(conn)
			s.serveConn(conn)
		})
	}
}

// scarce says whether err will pass when something else is closed: what is being
// served goes on meanwhile.
func scarce(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// maxQuery is how long a query may be: far more than a name and options are.
const maxQuery = 4096

// serveConn answers the queries of one connection in their order (RFC 7766).
func (s *Server) serveConn(conn net.Conn) {
	lim := s.config.Limits
	last := time.Now().Add(lim.TCPTotal)
	w := &scratch{in: make([]byte, maxQuery)}
	answers := make(chan []byte, 1)
	for range lim.TCPQueries {
		deadline := time.Now().Add(lim.TCPIdle)
		if deadline.After(last) {
			deadline = last
		}
		conn.SetDeadline(deadline)
		var head [2]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(head[:]))
		if n > maxQuery {
			return
		}
		if _, err := io.ReadFull(conn, w.in[:n]); err != nil {
			return
		}
		reply, later := s.handle(w.in[:n], w, client{answers: answers})
		if later {
			reply = <-answers // every lookup ends within its budget
		}
		if reply == nil {
			return
		}
		conn.SetWriteDeadline(time.Now().Add(lim.TCPIdle))
		framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)
		if _, err := conn.Write(framed); err != nil {
			return
		}
	}
}

// pool holds the open connections, oldest first. When it is full the oldest
// makes room: a client that has a question is served long before it is that.
type pool struct {
	max    int
	mu     sync.Mutex
	conns  []net.Conn
	closed bool
}

func newPool(most int) *pool { return &pool{max: most} }

func (p *pool) add(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.Close()
		return
	}
	if len(p.conns) >= p.max {
		p.conns[0].Close()
		p.conns = p.conns[1:]
	}
	p.conns = append(p.conns, c)
}

func (p *pool) remove(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.conns {
		if p.conns[i] == c {
			p.conns = append(p.conns[:i:i], p.conns[i+1:]...)
			return
		}
	}
}

// Close closes every connection, and those to come.
func (p *pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.conns {
		c.Close()
	}
	return nil
}
