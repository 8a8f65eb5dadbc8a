package keeper

import (
	"errors"
	"os"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// push hands the present policy to the guard. A guard that can't take it is
// replaced by one that starts with it. What is returned is closed when the guard
// has it, or is gone; nil if there is none.
func (g *guardKeeper) push() <-chan struct{} {
	ch, id, taken := g.expect()
	if ch == nil {
		return nil // the next guard starts with the new policy
	}
	f, err := wire.Memfd("policy", g.book.now().bundle)
	if err == nil {
		err = ch.Send(wire.Message{Op: wire.OpPolicy, ID: id}, f)
		f.Close()
	}
	if err != nil {
		g.log.Warn("the guard is restarted to take the new policy", "error", err)
		ch.Close()
	}
	return taken
}

// expect returns the channel of the guard that serves, nil if none does, and what is
// closed when it has answered id, or is gone.
func (g *guardKeeper) expect() (ch *wire.GuardChannel, id uint32, taken chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.live == nil {
		return nil, 0, nil
	}
	g.sent++
	taken = make(chan struct{})
	g.taken[g.sent] = taken
	return g.live, g.sent, taken
}

func (g *guardKeeper) noteTaken(id uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if taken := g.taken[id]; taken != nil {
		close(taken)
		delete(g.taken, id)
	}
}

// takePatience is how long a change of the policy waits for the guard to have
// it: what is no longer allowed is to end within a second.
const takePatience = 700 * time.Millisecond

func (g *guardKeeper) awaitTaken(taken <-chan struct{}) {
	if taken == nil {
		return
	}
	select {
	case <-taken:
	case <-time.After(takePatience):
		g.log.Warn("the guard is late to take what it was told")
	}
}

// resolveAhead lets this guard, and those that follow it, go further.
func (g *guardKeeper) resolveAhead(a wire.Ahead) {
	g.mu.Lock()
	g.ahead = a
	ch := g.live
	g.mu.Unlock()
	if ch != nil {
		g.tellAhead(ch, a)
	}
}

func (g *guardKeeper) tellAhead(ch *wire.GuardChannel, a wire.Ahead) {
	if err := ch.Send(wire.Message{Op: wire.OpAhead, ID: uint32(a)}, nil); err != nil {
		g.log.Debug("telling the guard to resolve ahead", "error", err)
	}
}

// announce tells the guard which self-test begins, or with nil that it has ended,
// and waits until the guard knows, but not for long.
func (g *guardKeeper) announce(plan *selftest.Plan) error {
	ch, id, taken := g.expect()
	if ch == nil {
		return errors.New("there is no guard")
	}
	var f *os.File
	if plan != nil {
		var err error
		if f, err = wire.Memfd("selftest-plan", plan); err != nil {
			return err
		}
		defer f.Close()
	}
	if err := ch.Send(wire.Message{Op: wire.OpProbing, ID: id}, f); err != nil {
		return err
	}
	g.awaitTaken(taken)
	return nil
}
