package resolver

import (
	"fmt"
	"sync"
	"time"
)

// seen remembers for a short time that something was recorded.
type seen struct {
	window time.Duration
	mu     sync.Mutex
	at     map[string]time.Time
}

// mark reports whether key was not marked within the window, and marks it.
func (s *seen) mark(key string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.at[key]; ok && now.Sub(t) < s.window {
		return false
	}
	if s.at == nil || len(s.at) >= 1024 {
		s.at = make(map[string]time.Time)
	}
	s.at[key] = now
	return true
}

// has reports whether key was marked within the window.
func (s *seen) has(key string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.at[key]
	return ok && now.Sub(t) < s.window
}

// Limits bounds what clients can make the server hold and do. Zero means the
// default in brackets.
type Limits struct {
	Lookups      int           // questions being asked upstream at once [256]
	Waiters      int           // clients waiting for the same question [64]
	TCPConns     int           // connections at once; above that the oldest goes [256]
	TCPIdle      time.Duration // for the next query, and for a reply to be taken [5 s]
	TCPTotal     time.Duration // a connection's life [30 s]
	TCPQueries   int           // queries on a connection [100]
	CacheEntries int           // answers kept [16384]
}

func (l *Limits) setDefaults() error {
	ints := []struct {
		name string
		v    *int
		def  int
	}{
		{"lookups", &l.Lookups, 256},
		{"waiters", &l.Waiters, 64},
		{"tcp connections", &l.TCPConns, 256},
		{"tcp queries", &l.TCPQueries, 100},
		{"cache entries", &l.CacheEntries, 16384},
	}
	for _, i := range ints {
		if *i.v < 0 {
			return fmt.Errorf("the limit of %s is %d: it can't be negative", i.name, *i.v)
		}
		if *i.v == 0 {
			*i.v = i.def
		}
	}
	if l.TCPIdle < 0 || l.TCPTotal < 0 {
		return fmt.Errorf("the tcp times are %v and %v: they can't be negative", l.TCPIdle, l.TCPTotal)
	}
	if l.TCPIdle == 0 {
		l.TCPIdle = 5 * time.Second
	}
	if l.TCPTotal == 0 {
		l.TCPTotal = 30 * time.Second
	}
	return nil
}
