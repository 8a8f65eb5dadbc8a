// Package budget limits how often something happens: a token bucket, what is asked below a
// wildcard, and connections while descriptors are short.
package budget

import (
	"hash/maphash"
	"math"
	"strings"
	"sync"
	"time"
)

// Bucket is a token bucket. The rate comes with each call, so that a changed policy takes effect at once.
type Bucket struct {
	mu     sync.Mutex
	tokens float64
	filled time.Time
}

// Drain empties the bucket.
func (b *Bucket) Drain(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens, b.filled = 0, now
}

// Take takes n tokens of a bucket that holds full and gains rate in a second;
// false if there aren't as many. A new bucket is full.
func (b *Bucket) Take(now time.Time, n, rate, full float64) bool {
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

// Left says whether there is anything in the bucket.
func (b *Bucket) Left(now time.Time, rate, full float64) bool {
	return b.Take(now, math.SmallestNonzeroFloat64, rate, full)
}

// Owe takes n tokens that are not there yet, if need be: of what is known only once it is done.
func (b *Bucket) Owe(n float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens -= n
}

// Pace lets Burst through at once, and then one in every Every.
type Pace struct {
	Burst  int
	Every  time.Duration
	bucket Bucket
}

// Take says whether one more may pass now.
func (p *Pace) Take(now time.Time) bool {
	return p.bucket.Take(now, 1, 1/p.Every.Seconds(), float64(p.Burst))
}

const (
	knownNames = 256 // names below one wildcard that may be asked for again at a lower cost
	OddWeight  = 4   // what a name counts that is made to carry data
	oddName    = 100 // bytes
	oddLabel   = 50

	// Which of the known names is asked for tells something too, but less than a new
	// one: so many questions for known names there may be for each new name.
	AgainPerNew = 4
)

// Budget limits how much is asked for below each wildcard, since every question tells the zone's owner something: a new
// name as much as fits in it, a known one which of them it is. It is safe for concurrent use.
type Budget struct {
	seed  maphash.Seed
	mu    sync.Mutex
	zones map[string]*zone // by the rule's name; there are only as many as rules
}

type zone struct {
	fresh, again  Bucket
	known, before map[uint64]struct{} // hashes of names; two generations
}

// NewBudget returns a Budget that is full.
func NewBudget() *Budget {
	return &Budget{seed: maphash.MakeSeed(), zones: make(map[string]*zone)}
}

// Take reports whether name, below the wildcard of rule, may be asked for, with perMinute new names allowed.
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
	case (known || before) && again && !z.again.Take(now, 1, AgainPerNew*full/60, AgainPerNew*full):
		return false
	case !known && !before && !z.fresh.Take(now, weight(name), full/60, full):
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

func weight(name string) float64 {
	if len(name) > oddName {
		return OddWeight
	}
	for label := range strings.SplitSeq(name, ".") {
		if len(label) > oddLabel {
			return OddWeight
		}
	}
	return 1
}
