package main

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/agent-init/agent-init/internal/metric"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
)

// scraped answers Prometheus. The agent is kept away by the packet filter, and by this as well.
type scraped struct {
	ask     func(context.Context) ([]metric.Metric, error)
	refused []netip.Prefix

	mu     sync.Mutex
	asked  time.Time
	latest []metric.Metric
}

const (
	scrapers  = 16              // at once
	staleness = time.Second     // however often somebody asks, the keeper is asked once a second
	patience  = 5 * time.Second // with one who asks
)

// serve answers at the listeners that were inherited, until ctx ends.
func (s *scraped) serve(ctx context.Context, listeners int) error {
	server := &http.Server{Handler: s, ReadTimeout: patience, WriteTimeout: patience, MaxHeaderBytes: 8 << 10, ErrorLog: log.New(io.Discard, "", 0)}
	server.SetKeepAlivesEnabled(false)
	failed := make(chan error, listeners+1)
	for i := range listeners {
		l, err := wire.Inherit(uintptr(stage.FDFiles+3+i), net.FileListener)
		if err != nil {
			return err
		}
		go func() { failed <- server.Serve(netutil.LimitListener(visitors{l, s}, scrapers)) }()
	}
	go func() { <-ctx.Done(); failed <- nil }()
	defer server.Close()
	return <-failed
}

// visitors are connections of those who may ask.
type visitors struct {
	net.Listener
	s *scraped
}

// Accept ends the others.
func (v visitors) Accept() (net.Conn, error) {
	for {
		conn, err := v.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if from, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil && !v.s.refuses(from.Addr().Unmap().WithZone("")) {
			return conn, nil
		}
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
}

func (s *scraped) refuses(a netip.Addr) bool {
	return a.IsLoopback() || slices.ContainsFunc(s.refused, func(p netip.Prefix) bool { return p.Contains(a) })
}

// ServeHTTP answers one.
func (s *scraped) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != "/metrics":
		http.Error(w, "there is /metrics, and nothing else", http.StatusNotFound)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		http.Error(w, "metrics are read", http.StatusMethodNotAllowed)
		return
	}
	metrics, err := s.now(r.Context())
	if err != nil {
		http.Error(w, "agent-init does not say", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_ = metric.WriteText(w, metrics)
}

func (s *scraped) now(ctx context.Context) ([]metric.Metric, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.asked) < staleness {
		return s.latest, nil
	}
	metrics, err := s.ask(ctx)
	if err == nil {
		s.latest, s.asked = metrics, time.Now()
	}
	return metrics, err
}
