package main

import (
	"context"
	"fmt"
	"sync"
)

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
