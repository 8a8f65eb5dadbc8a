package resolver

import (
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"time"
)

// bucket is a token bucket. The rate comes with each call, so that a changed
// policy takes effect at once.
type bucket struct {
	mu     sync.Mutex
	tokens float64
	filled time.Time
}

// take takes n tokens of a bucket that holds full and gains rate in a second;
// false if there aren't as many. A new bucket is full.
func (b *bucket) take(now time.Time, n, rate, full float64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.filled.IsZero() {
		b.tokens = full
	} else if d := now.Sub(b.filled).Seconds(); d > 0 {
		b.tokens += d * rate
	}
	b.tokens = min(b.tokens, full)
	b.filled = now
	if b.tokens < n {
		return false
	}
	b.tokens -= n
	return true
}

const (
	knownNames = 256 // names below one wildcard that may be asked for again at no cost
	oddWeight  = 4   // what a name counts that is made to carry data
	oddName    = 100 // bytes
	oddLabel   = 50
)

// wildcards limits how many new names are asked for below each wildcard, since
// every new name tells the zone's owner as much as fits in it.
type wildcards struct {
	seed  maphash.Seed
	mu    sync.Mutex
	zones map[string]*zone // by the rule's name; there are only as many as rules
}

type zone struct {
	bucket
	known, before map[uint64]struct{} // hashes of names; two generations
}

func newWildcards() *wildcards {
	return &wildcards{seed: maphash.MakeSeed(), zones: make(map[string]*zone)}
}

// allow reports whether name, below the wildcard of rule, may be asked for, with
// perMinute new names allowed.
func (w *wildcards) allow(rule, name string, perMinute int, now time.Time) bool {
	h := maphash.String(w.seed, name)
	w.mu.Lock()
	defer w.mu.Unlock()
	z := w.zones[rule]
	if z == nil {
		z = &zone{known: make(map[uint64]struct{})}
		w.zones[rule] = z
	}
	if _, ok := z.known[h]; ok {
		return true
	}
	if _, ok := z.before[h]; !ok {
		full := float64(perMinute)
		if !z.take(now, weight(name), full/60, full) {
			return false
		}
	}
	if len(z.known) >= knownNames {
		z.before, z.known = z.known, make(map[uint64]struct{})
	}
	z.known[h] = struct{}{}
	return true
}

// weight is what a new name counts.
func weight(name string) float64 {
	if len(name) > oddName {
		return oddWeight
	}
	for label := range strings.SplitSeq(name, ".") {
		if len(label) > oddLabel {
			return oddWeight
		}
	}
	return 1
}

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
