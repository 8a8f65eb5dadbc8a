package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
)

// readRequests serves what the guard asks, until its channel closes. The guard may
// be somebody else's by now: it can't have more answers under way than are counted
// here, and a message that it would not send ends it.
func (g *guardKeeper) readRequests(ctx context.Context, ch *channel) error {
	slots := make(chan struct{}, leasesAtOnce)
	places := make(chan struct{}, asksAtOnce)
	answer := func(reply func() message) {
		go func() {
			defer func() { <-places }()
			if err := ch.send(reply(), nil); err != nil {
				g.keeper.log.Debug("answering the guard", "error", err)
			}
		}()
	}
	for {
		m, file, err := ch.receive()
		if file != nil {
			file.Close() // the guard has none to give
		}
		switch {
		case errors.Is(err, errBadMessage):
			return errors.New("the guard sent a malformed message")
		case err != nil:
			return fmt.Errorf("the guard closed its channel: %w", err)
		}
		if m.op.asks() {
			select {
			case places <- struct{}{}:
			case <-time.After(pingPatience):
				return errors.New("the guard asks without reading the answers")
			}
		}
		switch m.op {
		case opReady:
			g.serving(ch)
		case opPong:
			g.keeper.update(func(s *state) { s.Guard.Seen, s.Guard.Stats = time.Now(), m.stats })
		case opPolicy:
			if m.err {
				return errors.New("the guard could not take the new policy")
			}
			g.noteTaken(m.id)
		case opProbing:
			g.noteTaken(m.id)
		case opRequest:
			answer(func() message { return g.keeper.requested(m) })
		case opOwner:
			answer(func() message { return g.keeper.owner(m) })
		case opName:
			answer(func() message { return g.keeper.mayAsk(m) })
		case opHeld:
			answer(func() message { return g.keeper.held(m) })
		case opDirect:
			answer(func() message { return g.keeper.direct(m) })
		case opLease:
			// Leases may wait for a change of the policy. What the guard sends
			// besides must be read meanwhile: it is what shows that it lives.
			answer(func() message {
				slots <- struct{}{}
				defer func() { <-slots }()
				return g.keeper.lease(ctx, m)
			})
		default:
			return errors.New("the guard sent an unknown request")
		}
	}
}

func (g *guardKeeper) serving(ch *channel) {
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
	k.update(func(s *state) {
		again = s.Guard.Restarts > 0
		s.Guard.OK, s.Guard.Fault, s.Guard.Seen = true, "", time.Now()
	})
	if again {
		k.record(audit.Event{Kind: audit.Guard, Verdict: audit.Info, Reason: "guard serves again"})
	}
	k.publish()
	g.once.Do(func() { close(g.ready) })
}
