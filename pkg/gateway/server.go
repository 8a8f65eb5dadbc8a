package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
)

// Stats counts what a Server has done since it was made.
type Stats struct {
	Accepted uint64 `json:"accepted"` // connections
	Allowed  uint64 `json:"allowed"`  // of those: let through
	Refused  uint64 `json:"refused"`  // of those: not
	Evicted  uint64 `json:"evicted"`  // of the refused: to make room
	Revoked  uint64 `json:"revoked"`  // let through, and cut later by Recheck
	Requests uint64 `json:"requests"` // HTTP requests let through
	Denied   uint64 `json:"denied"`   // HTTP requests refused
	Out      uint64 `json:"out"`      // bytes to servers
	In       uint64 `json:"in"`       // bytes to clients
	Open     int    `json:"open"`     // connections now
	Sniffing int    `json:"sniffing"` // of those: not judged yet
}

type counters struct {
	accepted, allowed, refused, evicted, revoked, requests, denied, out, in atomic.Uint64
}

// Server is the name gate. It is made by New.
type Server struct {
	config  Config
	buffers *sync.Pool
	epoch   time.Time
	stats   counters
	conns   registry
}

// New returns a Server that doesn't accept yet.
func New(c Config) (*Server, error) {
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	return &Server{
		config:  c,
		buffers: newPool(),
		epoch:   time.Now(),
		conns:   registry{open: make(map[*conn]struct{})},
	}, nil
}

// Stats returns the counts so far. A connection's bytes count at its end.
func (s *Server) Stats() Stats {
	c := &s.stats
	open, sniffing := s.conns.count()
	return Stats{
		Accepted: c.accepted.Load(),
		Allowed:  c.allowed.Load(),
		Refused:  c.refused.Load(),
		Evicted:  c.evicted.Load(),
		Revoked:  c.revoked.Load(),
		Requests: c.requests.Load(),
		Denied:   c.denied.Load(),
		Out:      c.out.Load(),
		In:       c.in.Load(),
		Open:     open,
		Sniffing: sniffing,
	}
}

// Serve accepts connections until ctx ends, or until a listener fails; then it
// closes the listeners, resets every connection and returns when all are gone.
// The error is nil if ctx ended. The listeners must accept *net.TCPConn. Where
// Config.Original is nil they must be made with SetMultipathTCP(false), one for
// each address family: the kernel tells the original destination of plain TCP only.
func (s *Server) Serve(ctx context.Context, listeners []net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work sync.WaitGroup
	for _, l := range listeners {
		work.Go(func() {
			if err := s.accept(ctx, l, &work); err != nil {
				cancel(fmt.Errorf("accept connections to the name gate: %w", err))
			}
		})
	}
	work.Go(func() { s.sweep(ctx) })
	<-ctx.Done()
	for _, l := range listeners {
		l.Close()
	}
	for _, c := range s.conns.shut() {
		c.end(audit.Info, "the gate stopped")
	}
	work.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// accept hands connections out until ctx ends.
func (s *Server) accept(ctx context.Context, l net.Listener, work *sync.WaitGroup) error {
	const least, most = 5 * time.Millisecond, time.Second
	pause := least
	for {
		client, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				client.Close()
			}
			return nil
		case err == nil:
			pause = least
		case scarce(err):
			// What is open may end soon; until then the backlog waits.
			s.config.Log.Warn("the name gate can't accept", "error", err)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			pause = min(2*pause, most)
			continue
		case errors.Is(err, syscall.ECONNABORTED):
			continue
		default:
			return err
		}
		tcp, ok := client.(*net.TCPConn)
		if !ok {
			client.Close()
			return fmt.Errorf("%T is not a TCP connection", client)
		}
		s.stats.accepted.Add(1)
		c := newConn(s, tcp, work)
		switch evicted, ok := s.conns.add(c, s.config.Limits); {
		case !ok:
			c.end(audit.Deny, refusedTooMany.Error())
			c.done()
		default:
			if evicted != nil {
				s.stats.evicted.Add(1)
				evicted.end(audit.Deny, refusedEvicted.Error())
			}
			go c.serve(ctx, own(l))
		}
	}
}

// own is the address that l listens on.
func own(l net.Listener) netip.AddrPort {
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		return unmap(a.AddrPort())
	}
	return netip.AddrPort{}
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// scarce says whether err will pass when something else is closed.
func scarce(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// sweep ends connections that were idle for too long. One clock for all: a
// timer for each would cost more than the rest of an idle connection.
func (s *Server) sweep(ctx context.Context) {
	tick := time.NewTicker(max(time.Millisecond, min(time.Minute, s.config.Limits.Idle/4)))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		oldest := s.clock() - int64(s.config.Limits.Idle)
		for _, c := range s.conns.all() {
			if c.active.Load() < oldest {
				c.end(audit.Allow, "idle for too long")
			}
		}
	}
}

// clock is a coarse reading of time for idleness, in nanoseconds.
func (s *Server) clock() int64 { return int64(time.Since(s.epoch)) }
