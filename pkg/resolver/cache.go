package resolver

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// cacheShards keeps readers on different processors out of each other's way.
const cacheShards = 16

// entry is an answer that was admitted.
type entry struct {
	*answer
	made    time.Time
	expires time.Time
	turn    atomic.Uint32 // which address goes first

	alone bool        // it has a line in the log to itself; this and asker are told's
	asker audit.Asker // that the line names
}

// remaining is the TTL that is left at now, rounded up; zero once expired.
func (e *entry) remaining(now time.Time) uint32 {
	d := e.expires.Sub(now)
	if d <= 0 {
		return 0
	}
	return uint32((d + time.Second - 1) / time.Second)
}

// cache holds a bounded number of entries, all of them admitted under one policy:
// under another they are worth nothing, since the name may not be allowed any more,
// and would keep the policy, which may be large, in memory. When it is full, one of
// a few looked at goes: an expired one if there is, else any. Which one can't be
// steered.
type cache struct {
	seed   maphash.Seed
	max    int // entries in each shard
	policy atomic.Pointer[policy.Policy]
	shards [cacheShards]cacheShard
}

type cacheShard struct {
	mu     sync.RWMutex
	m      map[string]*entry
	policy *policy.Policy // of every entry in m
	_      [24]byte       // a cache line of its own
}

func newCache(entries int) *cache {
	c := &cache{seed: maphash.MakeSeed(), max: max(1, entries/cacheShards)}
	for i := range c.shards {
		c.shards[i].m = make(map[string]*entry)
	}
	return c
}

// cacheKey appends the key of a name and type to b: names have no zero byte.
func cacheKey(b []byte, name []byte, qtype uint16) []byte {
	return append(append(b, name...), 0, byte(qtype>>8), byte(qtype))
}

func (c *cache) shard(key []byte) *cacheShard {
	return &c.shards[maphash.Bytes(c.seed, key)%cacheShards]
}

// get returns the entry of key that is valid now under p, or nil.
func (c *cache) get(key []byte, p *policy.Policy, now time.Time) *entry {
	s := c.shard(key)
	s.mu.RLock()
	e := s.m[string(key)]
	valid := s.policy == p
	s.mu.RUnlock()
	if e == nil || !valid || !now.Before(e.expires) {
		return nil
	}
	return e
}

// put keeps e, which was admitted under p, and forgets what was under another.
func (c *cache) put(key []byte, e *entry, p *policy.Policy, now time.Time) {
	if c.policy.Swap(p) != p {
		for i := range c.shards {
			c.shards[i].mu.Lock()
			c.shards[i].keepOnly(p)
			c.shards[i].mu.Unlock()
		}
	}
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepOnly(p) // others may have put under another policy meanwhile
	if _, ok := s.m[string(key)]; !ok && len(s.m) >= c.max {
		s.evict(now)
	}
	s.m[string(key)] = e
}

// keepOnly empties the shard if its entries are of another policy than p. The lock
// is held.
func (s *cacheShard) keepOnly(p *policy.Policy) {
	if s.policy != p {
		clear(s.m)
		s.policy = p
	}
}

// evict removes an entry. A range over a map starts at a random place.
func (s *cacheShard) evict(now time.Time) {
	var victim string
	looked := 0
	for k, e := range s.m {
		victim = k
		if looked++; looked == 8 || !now.Before(e.expires) {
			break
		}
	}
	delete(s.m, victim)
}

// len counts the entries, expired ones too.
func (c *cache) len() int {
	n := 0
	for i := range c.shards {
		c.shards[i].mu.RLock()
		n += len(c.shards[i].m)
		c.shards[i].mu.RUnlock()
	}
	return n
}
