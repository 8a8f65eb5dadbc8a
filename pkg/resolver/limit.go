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

// drain empties the bucket.
func (b *bucket) drain(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens, b.filled = 0, now
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
	knownNames = 256 // names below one wildcard that may be asked for again at a lower cost
	oddWeight  = 4   // what a name counts that is made to carry data
	oddName    = 100 // bytes
	oddLabel   = 50

	// Which of the known names is asked for tells something too, but less than a new
	// one: so many questions for known names there may be for each new name.
	againPerNew = 4
)

// Budget limits how much is asked for below each wildcard, since every question
// tells the zone's owner something: a new name as much as fits in it, a known one
// which of them it is. It is safe for concurrent use.
type Budget struct {
	seed  maphash.Seed
	mu    sync.Mutex
	zones map[string]*zone // by the rule's name; there are only as many as rules
}

type zone struct {
	fresh, again  bucket
	known, before map[uint64]struct{} // hashes of names; two generations
}

// NewBudget returns a Budget that is full.
func NewBudget() *Budget {
	return &Budget{seed: maphash.MakeSeed(), zones: make(map[string]*zone)}
}

// Take reports whether name, below the wildcard of rule, may be asked for, with
// perMinute new names allowed.
func (w *Budget) Take(rule, name string, perMinute int, now time.Time) bool {
	return w.take(rule, name, perMinute, now, true)
}

// Has reports whether name was taken before, or else takes it.
func (w *Budget) Has(rule, name string, perMinute int, now time.Time) bool {
	return w.take(rule, name, perMinute, now, false)
}

func (w *Budget) take(rule, name string, perMinute int, now time.Time, again bool) bool {
	h := maphash.String(w.seed, name)
	full := float64(perMinute)
	w.mu.Lock()
	defer w.mu.Unlock()
	z := w.zones[rule]
	if z == nil {
		z = &zone{known: make(map[uint64]struct{})}
		w.zones[rule] = z
	}
	_, known := z.known[h]
	_, before := z.before[h]
	switch {
	case (known || before) && again && !z.again.take(now, 1, againPerNew*full/60, againPerNew*full):
		return false
	case !known && !before && !z.fresh.take(now, weight(name), full/60, full):
		return false
	}
	if known {
		return true
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
