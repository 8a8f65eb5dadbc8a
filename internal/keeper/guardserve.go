package keeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
)

// readRequests serves what the guard asks, until its channel closes. The guard may
// be somebody else's by now: it can't have more answers under way than are counted
// here, and a message that it would not send ends it.
func (g *guardKeeper) readRequests(ctx context.Context, ch *wire.GuardChannel) error {
	slots := make(chan struct{}, leasesAtOnce)
	places := make(chan struct{}, wire.AsksAtOnce)
	answer := func(m wire.Message, by func(m, reply wire.Message) wire.Message) {
		go func() {
			defer func() { <-places }()
			if err := ch.Deliver(by(m, wire.Message{Op: m.Op, ID: m.ID})); err != nil {
				g.log.Debug("answering the guard", "error", err)
			}
		}()
	}
	for {
		m, file, err := ch.Receive()
		if file != nil {
			file.Close() // the guard has none to give
		}
		switch {
		case errors.Is(err, wire.ErrMalformed):
			return errors.New("the guard sent a malformed message")
		case err != nil:
			return fmt.Errorf("the guard closed its channel: %w", err)
		}
		if m.Op.Asks() {
			select {
			case places <- struct{}{}:
			case <-time.After(guardPatience):
				return errors.New("the guard asks without reading the answers")
			}
		}
		switch m.Op {
		case wire.OpReady:
			g.serving(ch)
		case wire.OpPong:
			g.update(func(s *state.State) { s.Guard.Seen, s.Guard.Stats = time.Now(), m.Stats })
		case wire.OpPolicy:
			if m.Err {
				return errors.New("the guard could not take the new policy")
			}
			g.noteTaken(m.ID)
		case wire.OpProbing:
			g.noteTaken(m.ID)
		case wire.OpRequest:
			answer(m, g.requested)
		case wire.OpOwner:
			answer(m, g.finding.owner)
		case wire.OpName:
			answer(m, g.leases.mayAsk)
		case wire.OpLeasedTo:
			answer(m, g.leases.leasedTo)
		case wire.OpDirect:
			answer(m, g.leases.direct)
		case wire.OpLease:
			// Leases may wait for a change of the policy. What the guard sends
			// besides must be read meanwhile: it is what shows that it lives.
			answer(m, func(m, reply wire.Message) wire.Message {
				slots <- struct{}{}
				defer func() { <-slots }()
				return g.leases.lease(ctx, m, reply)
			})
		default:
			return errors.New("the guard sent an unknown request")
		}
	}
}

// requested books a proposal, and answers it.
func (g *guardKeeper) requested(m, reply wire.Message) wire.Message {
	err := wire.CheckRequest(m)
	if err == nil && !g.leases.budgets.requests.Take(time.Now()) {
		err = errors.New("too many requests: wait a moment")
	}
	if err == nil {
		reply.Number, err = g.book.request(m)
	}
	if err != nil {
		reply.Err, reply.Text = true, wire.PlainText(err.Error())
	}
	return reply
}

func (g *guardKeeper) serving(ch *wire.GuardChannel) {
	present := g.book.now().bundle
	g.mu.Lock()
	g.live = ch
	outdated, ahead := g.given != present, g.ahead
	g.mu.Unlock()
	g.tellAhead(ch, ahead)
	if outdated { // the policy changed while the guard was on its way
		g.push()
	}
	again := false
	g.update(func(s *state.State) {
		again = s.Guard.Restarts > 0
		s.Guard.OK, s.Guard.Fault, s.Guard.Seen = true, "", time.Now()
	})
	if again {
		g.guardian(audit.Info, "guard serves again")
	}
	g.publish()
	g.once.Do(func() { close(g.ready) })
}
