package broker

import (
	"sync"
	"sync/atomic"
)

// Stats is what a route has done since the proxy began.
type Stats struct {
	Requests, Refused   uint64
	TokensIn, TokensOut int64
}

type counts struct {
	requests, refused   atomic.Uint64
	tokensIn, tokensOut atomic.Int64
}

func (c *counts) add(e *Event) {
	if e.Refused != "" {
		c.refused.Add(1)
	}
	c.tokensIn.Add(e.TokensIn)
	c.tokensOut.Add(e.TokensOut)
}

// stats has the counts of all routes that there were.
type stats struct {
	mu     sync.Mutex
	routes map[string]*counts
}

func (s *stats) of(route string) *counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.routes == nil {
		s.routes = map[string]*counts{}
	}
	if s.routes[route] == nil {
		s.routes[route] = &counts{}
	}
	return s.routes[route]
}

// Stats are by the names of routes.
func (p *Proxy) Stats() map[string]Stats {
	p.stats.mu.Lock()
	defer p.stats.mu.Unlock()
	all := make(map[string]Stats, len(p.stats.routes))
	for name, c := range p.stats.routes {
		all[name] = Stats{c.requests.Load(), c.refused.Load(), c.tokensIn.Load(), c.tokensOut.Load()}
	}
	return all
}
