// Package peers is how the guard and the broker, which hold no privilege, ask the keeper, and hand connections to each other.
package peers

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
)

// Asks are a child's questions that are under way. A place is free again when the answer has come, not when nobody
// waits for it any more: the keeper still works on it.
type Asks struct {
	channel *wire.Channel
	places  chan struct{}

	mu      sync.Mutex
	nextID  uint32
	waiting map[uint32]chan wire.Message
}

// NewAsks returns what asks over ch. Who receives from ch hands the answers to End.
func NewAsks(ch *wire.Channel) *Asks {
	return &Asks{channel: ch, places: make(chan struct{}, wire.AsksAtOnce), waiting: map[uint32]chan wire.Message{}}
}

const askTimeout = 5 * time.Second

// Ask waits as long as ctx says, and askTimeout at most.
func (a *Asks) Ask(ctx context.Context, m wire.Message) (wire.Message, error) {
	return a.AskAbout(ctx, m, nil)
}

// AskAbout is Ask about a file, which stays the caller's.
func (a *Asks) AskAbout(ctx context.Context, m wire.Message, file *os.File) (wire.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	id, answer, err := a.begin(ctx)
	if err != nil {
		return wire.Message{}, err
	}
	m.ID = id
	for err = a.channel.Send(m, file); errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil; {
		err = a.channel.Send(m, file) // the keeper is late, and the question's own time is not over
	}
	if err != nil {
		a.End(wire.Message{ID: id})
		return wire.Message{}, err
	}
	select {
	case r := <-answer:
		return r, nil
	case <-ctx.Done():
		return wire.Message{}, ctx.Err()
	}
}

// begin waits for a place, and returns the number to ask by and where the answer comes.
func (a *Asks) begin(ctx context.Context) (uint32, <-chan wire.Message, error) {
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

// End hands over the answer to whoever waits, if it is one that was asked for.
func (a *Asks) End(m wire.Message) {
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
