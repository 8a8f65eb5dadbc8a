package keeper

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/route"
)

// spending counts what the agent spends on each route. No end of a broker resets it.
type spending struct {
	mu     sync.Mutex
	routes map[string]*spent // only of routes that there are
}

type spent struct {
	requests budget.Bucket
	day      time.Time // whose tokens these are
	tokens   int64
	held     int64 // by requests under way
}

func newSpending() *spending { return &spending{routes: map[string]*spent{}} }

// of must be called with mu held.
func (s *spending) of(name string, now time.Time) *spent {
	p := s.routes[name]
	if p == nil {
		p = &spent{}
		s.routes[name] = p
	}
	if today := now.UTC().Truncate(24 * time.Hour); !p.day.Equal(today) {
		p.day, p.tokens = today, 0
	}
	return p
}

// take takes one request, which holds so many tokens until it is over, or says why there may be none.
func (s *spending) take(r route.Route, hold uint64, now time.Time) (refused string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, l := s.of(r.Name, now), r.Limits
	if most := float64(l.RequestsPerMinute); most > 0 && !p.requests.Take(now, 1, most/60, most) {
		return fmt.Sprintf("%d requests in a minute are spent: wait, or raise broker.%s.limits.requests_per_minute in the policy", l.RequestsPerMinute, r.Name)
	}
	if l.TokensPerDay > 0 && p.tokens >= l.TokensPerDay {
		return fmt.Sprintf("%d tokens are spent until 00:00 UTC: raise broker.%s.limits.tokens_per_day in the policy", l.TokensPerDay, r.Name)
	}
	if l.TokensPerDay > 0 && sum(p.tokens, uint64(p.held)) >= l.TokensPerDay {
		return fmt.Sprintf("the rest of %d tokens is held by requests under way: wait for them, or raise broker.%s.limits.tokens_per_day in the policy", l.TokensPerDay, r.Name)
	}
	p.held = sum(p.held, hold)
	return ""
}

// release takes back what a request has held. A broker that was taken over may say any number: it frees what was held, and
// nothing that was spent.
func (s *spending) release(name string, held uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.routes[name]; p != nil {
		p.held -= int64(min(held, uint64(p.held)))
	}
}

// broke spends what the requests of a broker held that has ended: nobody will say what they have come to.
func (s *spending) broke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.routes {
		p.tokens, p.held = sum(p.tokens, uint64(p.held)), 0
	}
}

func sum(tokens int64, more uint64) int64 {
	return tokens + int64(min(more, uint64(math.MaxInt64-tokens)))
}

// count counts what a request has come to. A broker that was taken over may say any number: none takes from the sum.
func (s *spending) count(name string, in, out uint64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.of(name, now)
	for _, n := range []uint64{in, out} {
		p.tokens = sum(p.tokens, n)
	}
}
