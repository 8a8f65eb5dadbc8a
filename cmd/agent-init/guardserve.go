package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
)

func (g *guardKeeper) readRequests(ctx context.Context, ch *channel) error {
	slots := make(chan struct{}, leasesAtOnce)
	var waiting atomic.Int64
	for {
		m, file, err := ch.receive()
		if file != nil {
			file.Close() // the guard has none to give
		}
		if errors.Is(err, errBadMessage) {
			return errors.New("the guard sent a malformed message")
		}
		if err != nil {
			return fmt.Errorf("the guard closed its channel: %w", err)
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
		case opFlush:
			g.noteTaken(m.id)
		case opRequest:
			go g.serveRequest(ch, m)
		case opOwner:
			go func() {
				if err := ch.send(g.keeper.owner(m), nil); err != nil {
					g.keeper.log.Debug("answering the guard", "error", err)
				}
			}()
		case opHeld, opDirect:
			answer := g.keeper.held
			if m.op == opDirect {
				answer = g.keeper.direct
			}
			if err := ch.send(answer(m), nil); err != nil {
				g.keeper.log.Debug("answering the guard", "error", err)
			}
		case opLease:
			// Leases may wait for a change of the policy. What the guard sends
			// besides must be read meanwhile: it is what shows that it lives.
			lease := func() message {
				slots <- struct{}{}
				defer func() { <-slots }()
				return g.keeper.lease(ctx, m)
			}
			if waiting.Load() >= leasesWaiting {
				lease = func() message { return message{op: opLease, id: m.id, err: true} }
			}
			waiting.Add(1)
			go func() {
				defer waiting.Add(-1)
				if err := ch.send(lease(), nil); err != nil {
					g.keeper.log.Debug("answering the guard", "error", err)
				}
			}()
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
