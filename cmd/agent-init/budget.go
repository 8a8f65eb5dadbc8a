package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/agent-init/agent-init/pkg/resolver"
)

// What the agent may have the guard do is limited where no end of a guard can reset
// it, and where a guard that was taken over can't go around it: in the keeper. What
// is under way between the two at a time is one number for both, asksAtOnce.

// asksAtOnce are the questions of the guard's that the keeper has not answered. The
// guard waits before it asks more. One that doesn't is none of ours: it is not read
// from any more, and then ended.
const asksAtOnce = 512

// asks says whether the guard waits for an answer.
func (o opcode) asks() bool {
	switch o {
	case opLease, opHeld, opDirect, opOwner, opName, opRequest:
		return true
	}
	return false
}

// budgets are the keeper's, of all guards together.
type budgets struct {
	names    *resolver.Budget // below wildcards
	requests pace
}

func newBudgets() *budgets {
	return &budgets{names: resolver.NewBudget(), requests: pace{burst: requestBurst, every: requestEvery}}
}

// mayAsk serves the guard, which asks before each question below a wildcard.
func (k *keeper) mayAsk(m message) message {
	return message{op: opName, id: m.id, err: !k.spent(m.name, (*resolver.Budget).Take)}
}

// spent says whether the budget of the wildcard that name is below has it, by how.
func (k *keeper) spent(name string, how func(*resolver.Budget, string, string, int, time.Time) bool) bool {
	k.mu.Lock()
	p := k.policy
	k.mu.Unlock()
	match := p.Lookup(name)
	if match.Wildcard == nil {
		return true // it has none: what else is to be said of it, others say
	}
	return how(k.budgets.names, match.Wildcard.Name, match.Name, p.Settings().Limits.NewNamesPerWildcardPerMinute, time.Now())
}

// spend is the guard's side of it.
func (g *guard) spend(ctx context.Context, name string) (bool, error) {
	reply, err := g.ask(ctx, message{op: opName, name: name})
	if err != nil {
		return false, fmt.Errorf("ask for a name's budget: %w", err)
	}
	return !reply.err, nil
}

// asks are the guard's questions that are under way. A place is free again when the
// answer has come, not when nobody waits for it any more: the keeper still works on it.
type asks struct {
	places chan struct{}

	mu      sync.Mutex
	nextID  uint32
	waiting map[uint32]chan message
}

func newAsks() *asks {
	return &asks{places: make(chan struct{}, asksAtOnce), waiting: map[uint32]chan message{}}
}

// begin waits for a place, and returns the number to ask by and where the answer comes.
func (a *asks) begin(ctx context.Context) (uint32, <-chan message, error) {
	select {
	case a.places <- struct{}{}:
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
	answer := make(chan message, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nextID++
	a.waiting[a.nextID] = answer
	return a.nextID, answer, nil
}

// end hands over the answer to whoever waits, if it is one that was asked for.
func (a *asks) end(m message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer, ok := a.waiting[m.id]
	if !ok {
		return
	}
	delete(a.waiting, m.id)
	answer <- m // there is room for it
	<-a.places
}
