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
	answer := func(reply func() wire.Message) {
		go func() {
			defer func() { <-places }()
			if err := ch.Deliver(reply()); err != nil {
				g.keeper.log.Debug("answering the guard", "error", err)
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
			g.keeper.update(func(s *state.State) { s.Guard.Seen, s.Guard.Stats = time.Now(), m.Stats })
		case wire.OpPolicy:
			if m.Err {
				return errors.New("the guard could not take the new policy")
			}
			g.noteTaken(m.ID)
		case wire.OpProbing:
			g.noteTaken(m.ID)
		case wire.OpRequest:
			answer(func() wire.Message { return g.keeper.requested(m) })
		case wire.OpOwner:
			answer(func() wire.Message { return g.keeper.owner(m) })
		case wire.OpName:
			answer(func() wire.Message { return g.keeper.mayAsk(m) })
		case wire.OpHeld:
			answer(func() wire.Message { return g.keeper.held(m) })
		case wire.OpDirect:
			answer(func() wire.Message { return g.keeper.direct(m) })
		case wire.OpLease:
			// Leases may wait for a change of the policy. What the guard sends
			// besides must be read meanwhile: it is what shows that it lives.
			answer(func() wire.Message {
				slots <- struct{}{}
				defer func() { <-slots }()
				return g.keeper.lease(ctx, m)
			})
		default:
			return errors.New("the guard sent an unknown request")
		}
	}
}

func (g *guardKeeper) serving(ch *wire.GuardChannel) {
	k := g.keeper
	k.mu.Lock()
	present := k.bundle
	k.mu.Unlock()
	g.mu.Lock()
	g.live = ch
	outdated, ahead := g.given != present, g.ahead
	g.mu.Unlock()
	g.tellAhead(ch, ahead)
	if outdated { // the policy changed while the guard was on its way
		g.push()
	}
	again := false
	k.update(func(s *state.State) {
		again = s.Guard.Restarts > 0
		s.Guard.OK, s.Guard.Fault, s.Guard.Seen = true, "", time.Now()
	})
	if again {
		k.record(audit.Event{Kind: audit.Guard, Verdict: audit.Info, Reason: "guard serves again"})
	}
	k.publish()
	g.once.Do(func() { close(g.ready) })
}
