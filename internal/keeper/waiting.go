package keeper

import (
	"strings"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// A step of the start that takes longer is shown: on the terminal of who has started it, in the status for all others,
// and once in the diagnostics, where nobody has a terminal.
const (
	longStep   = time.Second
	tediousFor = 3 * time.Second
)

// patience shows a step while it takes its time.
type patience struct {
	*base
	mu    sync.Mutex
	ended bool
	said  bool
	now   state.Waiting
	next  *time.Timer
}

// waitFor has others see, from now on, what the step that is under way waits for, and for how long at most.
func (b *base) waitFor(what string, limit time.Duration) {
	if p := b.patience; p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.now.For, p.now.Until = what, time.Now().Add(limit)
	}
}

func (b *base) begin(step string) *patience {
	p := &patience{base: b, now: state.Waiting{Step: step, Since: time.Now()}}
	p.next = time.AfterFunc(longStep, p.show)
	b.patience = p
	return p
}

func (p *patience) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	now := p.now
	p.progress.still(now)
	if p.progress == nil && !p.said && time.Since(now.Since) >= tediousFor {
		p.said = true
		p.log.Warn("the start takes its time", "step", now.Words(time.Now()))
	}
	p.update(func(s *state.State) { s.Waiting = &now })
	p.publish()
	p.next.Reset(longStep)
}

// end is the step's. Nothing is shown of it from then on.
func (p *patience) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.next.Stop()
	p.update(func(s *state.State) { s.Waiting = nil })
}

// reachedFor says in words what a self-test has to reach, "" if nothing.
func reachedFor(plan selftest.Plan) string {
	const most = 3
	var names []string
	for _, t := range append(plan.Required, plan.Reach...) {
		names = append(names, t.String())
	}
	if len(names) > most {
		names = append(names[:most], "…")
	}
	return strings.Join(names, ", ")
}
