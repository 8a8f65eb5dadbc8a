package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/upstream"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/policy"
)

// serveChannel handles what the keeper sends, until the keeper goes.
func (g *guard) serveChannel(ctx context.Context) error {
	// What the keeper asks is delivered however late it reads: a guard that ended for
	// that would be ended by whoever starves the keeper.
	for {
		m, file, err := g.channel.Receive()
		if errors.Is(err, wire.ErrMalformed) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: %w", stage.ErrKeeperGone, err)
		}
		switch m.Op {
		case wire.OpLease, wire.OpLeasedTo, wire.OpDirect, wire.OpOwner, wire.OpName, wire.OpRequest:
			g.asks.end(m)
		case wire.OpPing:
			err = g.channel.Deliver(wire.Message{Op: wire.OpPong, ID: m.ID, Stats: g.stats()})
		case wire.OpProbing:
			if e := g.probing.adoptPlan(file); e != nil {
				g.log.Error("taking the plan of the self-test", "error", e)
			}
			err = g.channel.Deliver(wire.Message{Op: wire.OpProbing, ID: m.ID})
		case wire.OpAhead:
			g.prefetch(ctx, g.policy.Load(), wire.Ahead(m.ID))
		case wire.OpPolicy:
			refused := g.adopt(ctx, file)
			if refused != nil {
				g.log.Error("taking the new policy", "error", refused)
			}
			err = g.channel.Deliver(wire.Message{Op: wire.OpPolicy, ID: m.ID, Err: refused != nil})
		}
		if file != nil {
			file.Close()
		}
		if err != nil {
			return err
		}
	}
}

func (g *guard) adopt(ctx context.Context, file *os.File) error {
	if file == nil {
		return errors.New("no policy in the message")
	}
	var b policy.Bundle
	if err := wire.ReadMemfd(file, &b); err != nil {
		return err
	}
	p, err := policy.Parse(&b, allowlist.Files)
	if err != nil {
		return err
	}
	ups, err := upstream.Of(p, g.servers)
	if err != nil {
		return err
	}
	if overTLS(ups) && !g.rooted {
		return errRootless
	}
	if err := g.resolver.SetUpstreams(ups); err != nil {
		return err
	}
	g.policy.Store(p)
	g.gate.Recheck()
	g.mu.Lock()
	a := g.ahead
	g.mu.Unlock()
	g.prefetch(ctx, p, a)
	return nil
}

// ask waits as long as ctx says, and askTimeout at most.
func (g *guard) ask(ctx context.Context, m wire.Message) (wire.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	id, answer, err := g.asks.begin(ctx)
	if err != nil {
		return wire.Message{}, err
	}
	m.ID = id
	for err = g.channel.Send(m, nil); errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil; {
		err = g.channel.Send(m, nil) // the keeper is late, and the question's own time is not over
	}
	if err != nil {
		g.asks.end(wire.Message{ID: id})
		return wire.Message{}, err
	}
	select {
	case r := <-answer:
		return r, nil
	case <-ctx.Done():
		return wire.Message{}, ctx.Err()
	}
}

const askTimeout = 5 * time.Second
