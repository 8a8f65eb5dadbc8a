package resolver

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

const maxCached = 16384 // answers

// entry is an answer that was admitted. There are tens of thousands: it is in one piece, and small.
type entry struct {
	answer
	expires time.Time
	asker   audit.Asker   // that the line in the log names; this and alone are told's
	turn    atomic.Uint32 // which address goes first
	alone   bool          // it has a line to itself
}

// made is when it was admitted.
func (e *entry) made() time.Time { return e.expires.Add(-time.Duration(e.ttl) * time.Second) }

// remaining is the TTL that is left at now, rounded up; zero once expired.
func (e *entry) remaining(now time.Time) uint32 { return seconds(max(0, e.expires.Sub(now))) }

// cache holds a bounded number of entries, all of them admitted under one policy: under
// another the name may not be allowed any more. When it is full, one of a few looked at
// goes, an expired one if there is. Which one can't be steered.
type cache struct {
	most   int
	mu     sync.RWMutex
	m      map[question]*entry
	policy *policy.Policy // of every entry in m
}

func newCache(most int) *cache { return &cache{most: most, m: make(map[question]*entry)} }

// get returns the entry that is valid now under p, or nil.
func (c *cache) get(name []byte, qtype uint16, p *policy.Policy, now time.Time) *entry {
	c.mu.RLock()
	e := c.m[question{string(name), qtype}] // which copies no name
	valid := c.policy == p
	c.mu.RUnlock()
	if e == nil || !valid || !now.Before(e.expires) {
		return nil
	}
	return e
}

// put keeps e, and forgets what was admitted under another policy than p.
func (c *cache) put(q question, e *entry, p *policy.Policy, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.policy != p {
		clear(c.m)
		c.policy = p
	}
	if _, ok := c.m[q]; !ok && len(c.m) >= c.most {
		c.evict(now)
	}
	c.m[q] = e
}

// evict removes an entry. A range over a map starts at a random place.
func (c *cache) evict(now time.Time) {
	var victim question
	looked := 0
	for q, e := range c.m {
		victim = q
		if looked++; looked == 8 || !now.Before(e.expires) {
			break
		}
	}
	delete(c.m, victim)
}
