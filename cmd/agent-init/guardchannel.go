package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/policy"
)

// serveChannel handles what the keeper sends, until the keeper goes.
func (g *guard) serveChannel(ctx context.Context) error {
	for {
		m, file, err := g.channel.Receive()
		if errors.Is(err, wire.ErrMalformed) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: %w", stage.ErrKeeperGone, err)
		}
		switch m.Op {
		case wire.OpLease, wire.OpHeld, wire.OpDirect, wire.OpOwner, wire.OpName, wire.OpRequest:
			g.asks.end(m)
		case wire.OpPing:
			err = g.channel.Send(wire.Message{Op: wire.OpPong, ID: m.ID, Stats: g.stats()}, nil)
		case wire.OpProbing:
			if e := g.probing.adoptPlan(file); e != nil {
				g.log.Error("taking the plan of the self-test", "error", e)
			}
			err = g.channel.Send(wire.Message{Op: wire.OpProbing, ID: m.ID}, nil)
		case wire.OpAhead:
			g.prefetch(ctx, g.policy.Load(), wire.Ahead(m.ID))
		case wire.OpPolicy:
			refused := g.adopt(ctx, file)
			if refused != nil {
				g.log.Error("taking the new policy", "error", refused)
			}
			err = g.channel.Send(wire.Message{Op: wire.OpPolicy, ID: m.ID, Err: refused != nil}, nil)
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
	if err := json.NewDecoder(io.LimitReader(file, stage.MaxBundle)).Decode(&b); err != nil {
		return err
	}
	p, err := policy.Parse(&b, presets())
	if err != nil {
		return err
	}
	ups, err := upstreams(p, g.servers)
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

func (g *guard) ask(ctx context.Context, m wire.Message) (wire.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	id, answer, err := g.asks.begin(ctx)
	if err != nil {
		return wire.Message{}, err
	}
	m.ID = id
	if err := g.channel.Send(m, nil); err != nil {
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
