package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/stage/child"
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
			return fmt.Errorf("%w: %w", child.ErrKeeperGone, err)
		}
		switch m.Op {
		case wire.OpLease, wire.OpLeasedTo, wire.OpDirect, wire.OpOwner, wire.OpName, wire.OpRequest:
			g.asks.End(m)
		case wire.OpPing:
			pong := wire.Message{Op: wire.OpPong, ID: m.ID, Stats: g.stats()}
			if by := g.health.Look(time.Now()).By; by.IsValid() {
				pong.Addrs, pong.Port = []netip.Addr{by.Addr()}, by.Port()
			}
			err = g.channel.Deliver(pong)
		case wire.OpProbing:
			if e := g.probing.adoptPlan(file); e != nil {
				g.log.Error("taking the plan of the self-test", "error", e)
			}
			err = g.channel.Deliver(wire.Message{Op: wire.OpProbing, ID: m.ID})
		case wire.OpResolve:
			go g.resolveFor(ctx, m)
		case wire.OpDecided:
			g.decided(m.Name)
		case wire.OpAhead:
			g.prefetch(ctx, g.policy.Load(), wire.Ahead(m.Arg), nil)
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
		if err != nil { // it was there to ask
			return fmt.Errorf("%w: %w", child.ErrKeeperGone, err)
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
	since := g.policy.Load()
	p, err := since.Next(&b, allowlist.Files)
	if err != nil {
		return err
	}
	ups, err := upstream.Of(p)
	if err != nil {
		return err
	}
	if was, err := upstream.Of(since); err != nil || !slices.Equal(was, ups) {
		since = nil // what others have answered is forgotten
	}
	if overTLS(ups) && !g.rooted {
		return errRootless
	}
	if err := cmp.Or(g.resolver.SetUpstreams(ups), g.routes.adopt(p, ups)); err != nil {
		return err
	}
	g.policy.Store(p)
	g.gate.Recheck()
	g.decided("")
	g.mu.Lock()
	a := g.ahead
	g.mu.Unlock()
	g.prefetch(ctx, p, a, since)
	return nil
}

// spend asks the keeper, who outlives the guard, for a part of a wildcard's budget.
func (g *guard) spend(ctx context.Context, name string) (bool, error) {
	reply, err := g.asks.Ask(ctx, wire.Message{Op: wire.OpName, Name: name})
	if err != nil {
		return false, fmt.Errorf("ask for a name's budget: %w", err)
	}
	return !reply.Err, nil
}

// admitFor returns what asks the keeper to lease addresses to the agent, or to the broker, and waits for its word.
func (g *guard) admitFor(flag uint8) func(context.Context, string, []netip.Addr, time.Duration) ([]netip.Addr, error) {
	return func(ctx context.Context, name string, addrs []netip.Addr, ttl time.Duration) ([]netip.Addr, error) {
		return g.admit(ctx, wire.Message{Op: wire.OpLease, Flag: flag, Name: name, TTL: ttl}, addrs)
	}
}

func (g *guard) admit(ctx context.Context, m wire.Message, addrs []netip.Addr) ([]netip.Addr, error) {
	defer func(begun time.Time) { g.leases.Add(1); g.leaseNanos.Add(uint64(time.Since(begun))) }(time.Now())
	var admitted []netip.Addr
	for len(addrs) > 0 {
		n := min(len(addrs), wire.MaxLeaseAddrs)
		m.Addrs = addrs[:n]
		reply, err := g.asks.Ask(ctx, m)
		if err != nil {
			return nil, fmt.Errorf("lease: %w", err)
		}
		if reply.Err {
			return nil, errors.New("the keeper could not lease the address")
		}
		admitted = append(admitted, reply.Addrs...)
		addrs = addrs[n:]
	}
	return admitted, nil
}

// leasedTo says whether addr is leased to this very name: it asks the keeper, unless that is known for certain.
func (g *guard) leasedTo(ctx context.Context, name string, addr netip.AddrPort) (bool, error) {
	if g.known.leasedTo(name, addr) {
		return true, nil
	}
	asked := time.Now()
	reply, err := g.askLease(ctx, name, addr)
	if err != nil {
		return false, err
	}
	if !reply.Err {
		g.known.note(name, addr, reply.Arg, asked.Add(reply.TTL))
	}
	return !reply.Err, nil
}

// beside asks the keeper where else on its port a name has leases.
func (g *guard) beside(ctx context.Context, name string, addr netip.AddrPort) ([]netip.Addr, error) {
	reply, err := g.askLease(ctx, name, addr)
	return reply.Addrs, err
}

func (g *guard) askLease(ctx context.Context, name string, addr netip.AddrPort) (wire.Message, error) {
	reply, err := g.asks.Ask(ctx, wire.Message{Op: wire.OpLeasedTo, Name: name, Addrs: []netip.Addr{addr.Addr()}, Port: addr.Port()})
	if err != nil {
		return reply, fmt.Errorf("ask for the lease: %w", err)
	}
	return reply, nil
}

// locate resolves a name for the gate, and has what is found leased.
func (g *guard) locate(ctx context.Context, name string) ([]netip.Addr, error) {
	addrs, _, err := g.resolver.Lookup(ctx, name, lateFamily)
	return addrs, err
}

// direct asks the keeper whether addr may be connected to unseen, and if that is for a name's sake, whose.
func (g *guard) direct(ctx context.Context, addr netip.AddrPort) (string, bool, error) {
	reply, err := g.asks.Ask(ctx, wire.Message{Op: wire.OpDirect, Addrs: []netip.Addr{addr.Addr()}, Port: addr.Port()})
	if err != nil {
		return "", false, fmt.Errorf("ask for the address: %w", err)
	}
	return reply.Name, !reply.Err, nil
}

// prefetch begins to resolve the names that p spells out, as far as the keeper lets it, instead of those of an earlier
// policy. With since, which is the policy before, that goes on, and p's other names are resolved beside it: tens of
// thousands looked up again would compete with whatever ends next.
func (g *guard) prefetch(ctx context.Context, p *policy.Policy, a wire.Ahead, since *policy.Policy) {
	g.mu.Lock()
	g.ahead = a
	if since == nil {
		if g.stop != nil {
			g.stop()
		}
		ctx, g.stop = context.WithCancel(ctx)
	}
	g.mu.Unlock()
	if a > 0 {
		go g.resolveAhead(ctx, p, a, since)
	}
}

// added are the names of p that since doesn't have in the same way; all without since.
func added(p, since *policy.Policy) (names []*policy.Rule) {
	if since == nil {
		return p.Names
	}
	for _, r := range p.Names {
		was := since.Lookup(r.Name)
		if !was.Allowed || was.Rule.Text != r.Text || !slices.Equal(since.Ports(r.Name), p.Ports(r.Name)) {
			names = append(names, r)
		}
	}
	return names
}

// fewNames are resolved at once: they don't slow the start down.
const fewNames = 100

// resolveAhead takes the required names first, so that the agent finds them leased.
func (g *guard) resolveAhead(ctx context.Context, p *policy.Policy, a wire.Ahead, since *policy.Policy) {
	var first, rest []string
	for _, r := range added(p, since) {
		if r.Required {
			first = append(first, r.Name)
		} else {
			rest = append(rest, r.Name)
		}
	}
	if a == wire.AheadFirst && len(rest) > fewNames {
		rest = nil
	}
	if a == wire.AheadAll {
		go g.routes.resolveAhead(ctx, p)
	}
	for _, names := range [][]string{first, rest} {
		if err := g.resolver.Prefetch(ctx, names); err != nil && ctx.Err() == nil {
			g.log.Info("resolving ahead", "error", err)
		}
	}
}
