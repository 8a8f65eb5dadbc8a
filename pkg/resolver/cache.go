package resolver

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

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
	edition uint32        // of the policy that it was admitted under
	reply   []byte        // the upstream's, for another policy to judge; nil: it is asked again
}

// maxReply is how many bytes of a reply are kept.
const maxReply = 512

// keepReply keeps m for as long as the answer, unless it is large.
func (e *entry) keepReply(m *dns.Msg) {
	if reply, err := m.Pack(); err == nil && len(reply) <= maxReply {
		e.reply = reply
	}
}

// made is when it was admitted.
func (e *entry) made() time.Time { return e.expires.Add(-time.Duration(e.ttl) * time.Second) }

// remaining is the TTL that is left at now, rounded up; zero once expired.
func (e *entry) remaining(now time.Time) uint32 { return seconds(max(0, e.expires.Sub(now))) }

// cache holds a bounded number of entries. Under another policy than an entry was admitted under, the name may not be
// allowed any more, or have other addresses: only what the upstream has said still counts then. When the cache is full, one
// of a few looked at goes, an expired one if there is. Which one can't be steered.
type cache struct {
	most    int
	mu      sync.RWMutex
	m       map[question]*entry
	policy  *policy.Policy // of the entries of this edition
	edition uint32
}

func newCache(most int) *cache { return &cache{most: most, m: make(map[question]*entry)} }

// get returns the entry that is valid now under p, or nil.
func (c *cache) get(q question, p *policy.Policy, now time.Time) *entry {
	c.mu.RLock()
	e := c.m[q]
	valid := c.policy == p && e != nil && e.edition == c.edition
	c.mu.RUnlock()
	if !valid || !now.Before(e.expires) {
		return nil
	}
	return e
}

// former returns what the upstream has said, whatever the policy was, with what is left of its time; nil if that is over.
func (c *cache) former(q question, now time.Time) *dns.Msg {
	c.mu.RLock()
	e := c.m[q]
	c.mu.RUnlock()
	m := new(dns.Msg)
	if e == nil || e.reply == nil || !now.Before(e.expires) || m.Unpack(e.reply) != nil {
		return nil
	}
	for _, rr := range slices.Concat(m.Answer, m.Ns) {
		h := rr.Header()
		h.Ttl = min(h.Ttl, e.remaining(now))
	}
	return m
}

// forget empties the cache: others are asked from now on.
func (c *cache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.m)
}

// put keeps e, which was admitted under p.
func (c *cache) put(q question, e *entry, p *policy.Policy, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.policy != p {
		c.policy = p
		c.edition++
		maps.DeleteFunc(c.m, func(_ question, e *entry) bool { return e.reply == nil || !now.Before(e.expires) })
	}
	e.edition = c.edition
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
