package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/agent-init/agent-init/pkg/policy"
)

// serveChannel handles what the keeper sends, until the keeper goes.
func (g *guard) serveChannel(ctx context.Context) error {
	for {
		m, file, err := g.channel.receive()
		if errors.Is(err, errBadMessage) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errKeeperGone, err)
		}
		switch m.op {
		case opLease, opHeld, opDirect, opOwner, opName, opRequest:
			g.asks.end(m)
		case opPing:
			err = g.channel.send(message{op: opPong, id: m.id, stats: g.stats()}, nil)
		case opProbing:
			if e := g.probing.adoptPlan(file); e != nil {
				g.log.Error("taking the plan of the self-test", "error", e)
			}
			err = g.channel.send(message{op: opProbing, id: m.id}, nil)
		case opAhead:
			g.prefetch(ctx, g.policy.Load(), ahead(m.id))
		case opPolicy:
			refused := g.adopt(ctx, file)
			if refused != nil {
				g.log.Error("taking the new policy", "error", refused)
			}
			err = g.channel.send(message{op: opPolicy, id: m.id, err: refused != nil}, nil)
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
	if err := json.NewDecoder(io.LimitReader(file, maxBundle)).Decode(&b); err != nil {
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

func (g *guard) ask(ctx context.Context, m message) (message, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	id, answer, err := g.asks.begin(ctx)
	if err != nil {
		return message{}, err
	}
	m.id = id
	if err := g.channel.send(m, nil); err != nil {
		g.asks.end(message{id: id})
		return message{}, err
	}
	select {
	case r := <-answer:
		return r, nil
	case <-ctx.Done():
		return message{}, ctx.Err()
	}
}

const askTimeout = 5 * time.Second
