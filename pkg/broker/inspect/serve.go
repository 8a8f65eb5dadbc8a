package inspect

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/agent-init/agent-init/pkg/route"
)

const (
	maxHead  = 64 << 10 // of a request; net/http adds 4 KiB
	headTime = 10 * time.Second
	idleTime = 5 * time.Minute // that a connection without a request stays open

	// maxStreams are requests at once of one connection, maxUnder those of all, and maxUnderOfUser those of one user. Each
	// takes some 30 kB.
	maxStreams     = 100
	maxUnder       = 2048
	maxUnderOfUser = maxUnder / 4 * 3

	// window is what a client sends ahead of what a server takes, of a connection and of a stream alike. The client is on
	// this machine, so that it is filled anew at once. There is no smaller one of a connection (RFC 9113, section 6.9.2),
	// and one of a stream would not be known yet to a client that sends at once.
	window = 1<<16 - 1

	pingAfter = time.Minute
	pingTime  = 15 * time.Second
)

// Serve serves what is handed over, until ctx ends. Then all connections are closed.
func (s *Server) Serve(ctx context.Context) error {
	server := &http.Server{
		Handler: s,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, connOf(c))
		},
		ConnState: func(c net.Conn, s http.ConnState) {
			if s == http.StateIdle {
				connOf(c).waits()
			}
		},
		ReadHeaderTimeout: headTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHead,
		TLSConfig:         s.tls.Clone(),              // net/http changes it
		ErrorLog:          log.New(io.Discard, "", 0), // it would repeat what clients send
		Protocols:         new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReceiveBufferPerConnection: window,
			MaxReceiveBufferPerStream:     window,
			SendPingTimeout:               pingAfter,
			PingTimeout:                   pingTime,
			WriteByteTimeout:              route.IdleTime,
		},
		DisableGeneralOptionsHandler: true, // it answers everybody
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true) // over TLS alone
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(arrivals{s}) }()
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.finish()
	server.Close()
	s.all.Wait()
	return err
}

type connKey struct{}

// connOf is what a connection of http.Server's is to us.
func connOf(c net.Conn) *conn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return c.(*conn)
}

// waits says that the next that comes is a head. HTTP/2 bounds what is made of one.
func (c *conn) waits() {
	if c.speaks != "h2" {
		c.head.Begin()
	}
}

// finish ends all that goes on.
func (s *Server) finish() {
	s.mu.Lock()
	s.ended = true
	conns, upstream := slices.Collect(maps.Keys(s.conns)), slices.Collect(maps.Keys(s.upstream))
	s.mu.Unlock()
	s.flows.EndAll(errEnding)
	s.stop()
	for _, c := range conns {
		c.Close()
	}
	for _, u := range upstream {
		u.Close()
	}
}

// arrivals is a net.Listener of the connections whose handshake is over.
type arrivals struct{ of *Server }

func (a arrivals) Accept() (net.Conn, error) {
	select {
	case c := <-a.of.arrived:
		return c, nil
	case <-a.of.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (a arrivals) Close() error   { return nil }
func (a arrivals) Addr() net.Addr { return &net.TCPAddr{} }
