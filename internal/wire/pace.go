package wire

import (
	"sync"
	"time"
)

// Pace lets a few through at once, and then one from time to time.
type Pace struct {
	mu     sync.Mutex
	Burst  int
	Every  time.Duration
	spent  int
	filled time.Time
}

// Take says whether one more may pass now.
func (p *Pace) Take(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := int(now.Sub(p.filled) / p.Every); n > 0 {
		p.spent, p.filled = max(0, p.spent-n), now
	}
	if p.spent >= p.Burst {
		return false
	}
	p.spent++
	return true
}
