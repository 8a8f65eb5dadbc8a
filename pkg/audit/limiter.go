package audit

import (
	"container/list"
	"context"
	"hash/maphash"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/agent-init/agent-init/pkg/budget"
)

// The limits of a Limiter. An agent at work stays far below them.
const (
	perKey    = 5           // lines per key and window
	keyWindow = time.Minute // after which a key may speak again
	maxKeys   = 1024        // keys remembered
	classRate = 5           // lines per second, for each kind and verdict of traffic
	classFull = 1000        // lines at once, likewise
	sweepTime = time.Second // how often summaries are due
)

// Limiter stands before a Recorder and keeps a flood from filling the log: the first few events of a key (kind,
// verdict, asker, name, address, port, protocol, what the broker was asked; of events about agent-init itself also the uid and how the reason
// begins) in a minute pass, the others are counted, and the last of them is recorded with the count. Above that each
// kind and verdict of traffic has a rate limit of its own, so that a million refusals can't push an allowed connection
// out of sight. Events about agent-init itself know only the limit per key: of those that the agent can cause at will,
// all that differs is in the rest of the reason. Memory is bounded, and no count is lost: the sum of 1+Suppressed over
// all that was recorded after Flush is the number of events taken. It is safe for concurrent use.
type Limiter struct {
	next Recorder
	now  func() time.Time

	mu      sync.Mutex
	out     []Event // to be recorded when the lock is let go
	seed    maphash.Seed
	keys    map[uint64]*list.Element // of *entry, by the hash of its key
	recent  *list.List               // most recently used first
	classes map[Event]*bucket
}

// key is what events have in common that are limited together. Keys take as much memory as events, so their hashes
// stand for them: two with the same would share a limit, and lose no count. Without the seed nobody finds such two.
type key struct {
	Event
	uid int64 // whose doing it was, of events about agent-init itself; -1 if that is not said
}

func keyOf(e Event) key {
	k := key{classOf(e), -1}
	k.Name, k.IP, k.Proto, k.Port = e.Name, e.IP, e.Proto, e.Port
	k.Route, k.Method, k.Path, k.Model, k.Status = e.Route, e.Method, e.Path, e.Model, e.Status
	if !e.Kind.traffic() {
		k.Reason = gist(e.Reason)
		if e.UID != nil {
			k.uid = int64(*e.UID)
		}
	}
	return k
}

func classOf(e Event) Event {
	return Event{Kind: e.Kind, Verdict: e.Verdict, Enforce: e.Enforce, Asker: e.Asker}
}

// gist is how a reason begins: "guard ended: …" many times hides no "rules changed: …". What follows a colon may be
// made up by a guard that was taken over, and numbers count what the agent may open and close as often as it likes,
// with names of its own behind them: "window 17 (name) ended".
func gist(reason string) string {
	if i := strings.IndexAny(reason, ":0123456789"); i >= 0 {
		return reason[:i]
	}
	return reason
}

type entry struct {
	key    uint64 // its hash
	since  time.Time
	passed int
	held   held
}

// held counts events that have not been recorded yet, and keeps the last of them.
type held struct {
	count uint64
	last  *Event // nil: there is none. Most keys have none, and an event is large
}

// add counts e. A sender may claim any numbers, and none may hide an earlier count: sums stop at the largest.
func (h *held) add(e Event) {
	if h.last == nil {
		h.last = new(Event)
	} else {
		e.Out, e.In = sum(e.Out, h.last.Out), sum(e.In, h.last.In)
		e.TokensIn, e.TokensOut = sum(e.TokensIn, h.last.TokensIn), sum(e.TokensOut, h.last.TokensOut)
	}
	h.count = sum(h.count, sum(1, e.Suppressed))
	*h.last = e
}

func sum(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

// take returns the last event with the count of those before it, and the bytes and tokens of all.
func (h *held) take() Event {
	e := *h.last
	e.Suppressed = h.count - 1
	*h = held{}
	return e
}

type bucket struct {
	pace budget.Pace
	held held
}

// NewLimiter returns a Limiter that passes on to next. While nothing happens, Run makes the summaries.
func NewLimiter(next Recorder) *Limiter {
	return &Limiter{next: next, now: time.Now, seed: maphash.MakeSeed(), keys: map[uint64]*list.Element{}, recent: list.New(), classes: map[Event]*bucket{}}
}

// Run records summaries as they become due, until ctx ends; then it flushes.
func (l *Limiter) Run(ctx context.Context) {
	tick := time.NewTicker(sweepTime)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.sweep(false)
		case <-ctx.Done():
			l.Flush()
			return
		}
	}
}

// Flush records every count that is held back, now.
func (l *Limiter) Flush() { l.sweep(true) }

// Record is the Recorder that Limiter is.
func (l *Limiter) Record(e Event) {
	e = e.capped()
	l.locked(func(now time.Time) {
		en := l.lookup(e, now)
		if now.Sub(en.since) >= keyWindow {
			l.close(en, now)
			en.since, en.passed = now, 0
		}
		en.held.add(e)
		if en.passed < perKey {
			l.let(en, now)
		}
	})
}

func (l *Limiter) locked(work func(now time.Time)) {
	l.mu.Lock()
	work(l.now())
	out := l.out
	l.out = nil
	l.mu.Unlock()
	for _, e := range out {
		l.next(e)
	}
}

func (l *Limiter) let(en *entry, now time.Time) bool {
	ok := !en.held.last.Kind.traffic() || l.bucket(*en.held.last).pace.Take(now)
	if ok {
		en.passed++
		l.out = append(l.out, en.held.take())
	}
	return ok
}

// lookup finds or makes the entry for e; the one that was used least recently makes room for a new one, with a summary.
func (l *Limiter) lookup(e Event, now time.Time) *entry {
	k := maphash.Comparable(l.seed, keyOf(e))
	if el, ok := l.keys[k]; ok {
		l.recent.MoveToFront(el)
		return el.Value.(*entry)
	}
	if l.recent.Len() >= maxKeys {
		l.drop(l.recent.Back(), now)
	}
	en := &entry{key: k, since: now}
	l.keys[k] = l.recent.PushFront(en)
	return en
}

func (l *Limiter) drop(el *list.Element, now time.Time) {
	en := el.Value.(*entry)
	l.close(en, now)
	l.recent.Remove(el)
	delete(l.keys, en.key)
}

// close ends the window of an entry: its summary is recorded, or, beyond the rate, counted in its class.
func (l *Limiter) close(en *entry, now time.Time) {
	if en.held.last != nil && !l.let(en, now) {
		e := en.held.take()
		l.bucket(e).held.add(e)
	}
}

func (l *Limiter) bucket(e Event) *bucket {
	c := classOf(e)
	if l.classes[c] == nil {
		l.classes[c] = &bucket{pace: budget.Pace{Burst: classFull, Every: time.Second / classRate}}
	}
	return l.classes[c]
}

// sweep records what the rate made wait, the newest first, and closes windows that are over (or all). Then it records
// at most one overall summary per class, outside of the rate: there are few classes.
func (l *Limiter) sweep(all bool) {
	l.locked(func(now time.Time) {
		for el := l.recent.Front(); el != nil; el = el.Next() {
			if en := el.Value.(*entry); en.held.last != nil && en.passed == 0 {
				l.let(en, now)
			}
		}
		for el := l.recent.Back(); el != nil; {
			prev := el.Prev()
			if all || now.Sub(el.Value.(*entry).since) >= keyWindow {
				l.drop(el, now)
			}
			el = prev
		}
		for c, b := range l.classes {
			if b.held.last != nil {
				c.Suppressed, c.Reason = b.held.take().Suppressed, "flood: too many different events to show each"
				l.out = append(l.out, c)
			}
		}
	})
}
