package guard

import (
	"context"
	"fmt"
	"sync"

	"github.com/agent-init/agent-init/internal/wire"
)

// spend is the guard's side of it.
func (g *guard) spend(ctx context.Context, name string) (bool, error) {
	reply, err := g.ask(ctx, wire.Message{Op: wire.OpName, Name: name})
	if err != nil {
		return false, fmt.Errorf("ask for a name's budget: %w", err)
	}
	return !reply.Err, nil
}

// asks are the guard's questions that are under way. A place is free again when the
// answer has come, not when nobody waits for it any more: the keeper still works on it.
type asks struct {
	places chan struct{}

	mu      sync.Mutex
	nextID  uint32
	waiting map[uint32]chan wire.Message
}

func newAsks() *asks {
	return &asks{places: make(chan struct{}, wire.AsksAtOnce), waiting: map[uint32]chan wire.Message{}}
}

// begin waits for a place, and returns the number to ask by and where the answer comes.
func (a *asks) begin(ctx context.Context) (uint32, <-chan wire.Message, error) {
	select {
	case a.places <- struct{}{}:
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
	answer := make(chan wire.Message, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nextID++
	a.waiting[a.nextID] = answer
	return a.nextID, answer, nil
}

// end hands over the answer to whoever waits, if it is one that was asked for.
func (a *asks) end(m wire.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer, ok := a.waiting[m.ID]
	if !ok {
		return
	}
	delete(a.waiting, m.ID)
	answer <- m // there is room for it
	<-a.places
}
