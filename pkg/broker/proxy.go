package broker

import (
	"context"
	"crypto/cipher"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/agent-init/agent-init/pkg/broker/inspect"
	"github.com/agent-init/agent-init/pkg/broker/room"
	"github.com/agent-init/agent-init/pkg/broker/underway"
	"github.com/agent-init/agent-init/pkg/route"
)

const (
	maxHead  = 32 << 10 // of a request; net/http adds 4 KiB
	headTime = 10 * time.Second
)

// Proxy serves the routes that are loaded.
type Proxy struct {
	config    Config
	bodies    *bodies
	documents *room.Room // of registries' documents
	callers   *callers
	seal      cipher.AEAD   // of tickets
	idle      time.Duration // how long an answer may be silent
	flows     underway.Set[table, *exchange]

	inspected *inspect.Server

	loading sync.Mutex
	retired map[*upstream]struct{} // of former roots, with requests under way
}

// New returns a proxy without any route.
func New(c Config) *Proxy {
	p := &Proxy{
		bodies: newBodies(), documents: room.New(maxDocuments), seal: newSeal(), idle: route.IdleTime,
		retired: map[*upstream]struct{}{},
	}
	c.Room = p.bodies.room
	p.config, p.callers, p.inspected = c, newCallers(c), inspect.New(c.Config)
	return p
}

// Serve answers who connects to listeners, until ctx ends. Then all connections are closed.
func (p *Proxy) Serve(ctx context.Context, listeners ...net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &serving{Proxy: p, ctx: ctx}
	server := &http.Server{
		Handler: s,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, callerKey{}, c)
		},
		ReadHeaderTimeout: headTime,
		MaxHeaderBytes:    maxHead,
		ErrorLog:          log.New(io.Discard, "", 0), // it would repeat what callers send

		DisableGeneralOptionsHandler: true, // it answers everybody
	}
	// A connection carries one request: nothing is smuggled past the judge behind it.
	server.SetKeepAlivesEnabled(false)
	failed := make(chan error, len(listeners)+1)
	for _, l := range listeners {
		go func() { failed <- server.Serve(listener{Listener: l, ctx: ctx, all: p.callers}) }()
	}
	inspected := make(chan struct{})
	go func() {
		defer close(inspected)
		failed <- p.inspected.Serve(ctx)
	}()
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.entry.Lock()
	cancel()
	s.entry.Unlock()
	server.Close()
	p.callers.closeAll()
	s.under.Wait()
	<-inspected
	return err
}

type callerKey struct{}

// serving is a proxy between its begin and its end.
type serving struct {
	*Proxy
	ctx context.Context

	entry sync.Mutex
	under sync.WaitGroup // requests under way
}

// enter counts a request that begins. None does once the end has come.
func (s *serving) enter() bool {
	s.entry.Lock()
	defer s.entry.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.under.Add(1)
	return true
}
