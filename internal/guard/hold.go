package guard

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/budget"
)

// The bounds of questions that are held. The agent chooses the names.
const (
	heldAtOnce  = 16                     // names
	heldWaiters = 64                     // questions for one of them
	heldBefore  = 1024                   // names that were held and are not again
	heldMargin  = 500 * time.Millisecond // a packet filter forgets whose a question is when the longest hold is over
)

// holds are the names whose first question waits for a person. A name is held once: who asks again, having been refused,
// is refused at once.
type holds struct {
	mu     sync.Mutex
	now    map[string]*held
	before map[string]bool
	pace   budget.Pace
}

type held struct {
	over    chan struct{}
	waiters int
}

func newHolds() *holds {
	return &holds{now: map[string]*held{}, before: map[string]bool{}, pace: budget.Pace{Burst: heldAtOnce, Every: wire.RequestEvery}}
}

// begin returns where to wait, and whether this is the first question; nil if it is not to wait.
func (h *holds) begin(name string, now time.Time) (one *held, first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one = h.now[name]; one != nil {
		if one.waiters >= heldWaiters {
			return nil, false
		}
		one.waiters++
		return one, false
	}
	if len(h.now) >= heldAtOnce || h.before[name] || !h.pace.Take(now) {
		return nil, false
	}
	if len(h.before) >= heldBefore {
		clear(h.before)
	}
	one = &held{over: make(chan struct{}), waiters: 1}
	h.now[name], h.before[name] = one, true
	return one, true
}

// end has the questions for the names that is says so of decided.
func (h *holds) end(is func(name string) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, one := range h.now {
		if is(name) {
			close(one.over)
			delete(h.now, name)
		}
	}
}

// hold makes a request of the first question for a name, since a program that looks a name up knows of no requests, and
// has it wait for what becomes of that. It waits for nobody.
func (g *guard) hold(ctx context.Context, name string, who func() *audit.Process) <-chan struct{} {
	limit := time.Duration(g.policy.Load().Settings.Approvals.Hold) - heldMargin
	if limit <= 0 {
		return nil
	}
	line, err := grant.ParseLine(grant.Allow, name)
	if err != nil || line.Text != name {
		return nil
	}
	one, first := g.holds.begin(name, time.Now())
	if one == nil {
		return nil
	}
	if first {
		go func() {
			timer := time.NewTimer(limit)
			defer timer.Stop()
			defer g.holds.end(func(other string) bool { return other == name })
			if !g.requestHeld(ctx, name, who()) {
				return
			}
			select {
			case <-one.over: // it was decided
			case <-timer.C:
			case <-ctx.Done():
			}
		}()
	}
	return one.over
}

// requestHeld proposes a name for whoever looks it up, and says whether a person is asked.
func (g *guard) requestHeld(ctx context.Context, name string, by *audit.Process) bool {
	m := wire.Message{Op: wire.OpRequest, Flag: wire.ForHeld, Name: name, Text: "it was looked up, and waits", UID: g.agent}
	if by != nil {
		m.UID, m.PID = by.UID, uint32(by.PID)
		if by.Comm != "" { // where it could be found in time
			m.Text = wire.PlainText(fmt.Sprintf("looked up by %s, which waits", by.Comm))
		}
	}
	reply, err := g.asks.Ask(ctx, m)
	return err == nil && !reply.Err
}

// decided answers the questions for a name, of which the keeper says that somebody has decided, or that are allowed now.
func (g *guard) decided(target string) {
	p := g.policy.Load()
	g.holds.end(func(name string) bool { return name == target || p.Lookup(name).Allowed })
}
