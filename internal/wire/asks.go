package wire

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// Asks are a child's questions that are under way. A place is free again when the answer has come, not when nobody
// waits for it any more: the keeper still works on it.
type Asks struct {
	channel *Channel
	places  chan struct{}

	mu      sync.Mutex
	nextID  uint32
	waiting map[uint32]chan Message
}

// NewAsks returns what asks over ch. Who receives from ch hands the answers to End.
func NewAsks(ch *Channel) *Asks {
	return &Asks{channel: ch, places: make(chan struct{}, AsksAtOnce), waiting: map[uint32]chan Message{}}
}

const askTimeout = 5 * time.Second

// Ask waits as long as ctx says, and askTimeout at most.
func (a *Asks) Ask(ctx context.Context, m Message) (Message, error) { return a.AskAbout(ctx, m, nil) }

// AskAbout is Ask about a file, which stays the caller's.
func (a *Asks) AskAbout(ctx context.Context, m Message, file *os.File) (Message, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	id, answer, err := a.begin(ctx)
	if err != nil {
		return Message{}, err
	}
	m.ID = id
	for err = a.channel.Send(m, file); errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil; {
		err = a.channel.Send(m, file) // the keeper is late, and the question's own time is not over
	}
	if err != nil {
		a.End(Message{ID: id})
		return Message{}, err
	}
	select {
	case r := <-answer:
		return r, nil
	case <-ctx.Done():
		return Message{}, ctx.Err()
	}
}

// begin waits for a place, and returns the number to ask by and where the answer comes.
func (a *Asks) begin(ctx context.Context) (uint32, <-chan Message, error) {
	select {
	case a.places <- struct{}{}:
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
	answer := make(chan Message, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nextID++
	a.waiting[a.nextID] = answer
	return a.nextID, answer, nil
}

// End hands over the answer to whoever waits, if it is one that was asked for.
func (a *Asks) End(m Message) {
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
