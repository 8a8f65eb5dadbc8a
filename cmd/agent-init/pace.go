package main

import (
	"sync"
	"time"
)

// pace lets a few through at once, and then one from time to time.
type pace struct {
	mu     sync.Mutex
	burst  int
	every  time.Duration
	spent  int
	filled time.Time
}

func (p *pace) take(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := int(now.Sub(p.filled) / p.every); n > 0 {
		p.spent, p.filled = max(0, p.spent-n), now
	}
	if p.spent >= p.burst {
		return false
	}
	p.spent++
	return true
}
