package keeper

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

// The broker asks the keeper for the addresses of a host of its routes, or of an inspected name. The keeper has the guard
// resolve it. Nothing that either of them says is believed: the name has to be in the keeper's own policy of the broker,
// and of the addresses, those are handed on that its ledger has by then.

// resolveTime is how long the guard may take.
const resolveTime = 5 * time.Second

// resolvedAtOnce bounds what the guard has not answered yet.
const resolvedAtOnce = 64

// lookup has the guard resolve a host that the broker reaches by its own policy, which leases the addresses to it.
func (g *guardKeeper) lookup(ctx context.Context, pace *budget.Pace, m, reply wire.Message) wire.Message {
	own := g.book.policy().Broker
	switch {
	case own == nil || !own.Lookup(m.Name).Allowed:
		reply.Err, reply.Text = true, "no route leads there"
		return reply
	case !pace.Take(time.Now()):
		reply.Err, reply.Text = true, "too many questions"
		return reply
	}
	addrs, ttl, err := g.resolve(ctx, m.Name)
	if err != nil {
		reply.Err, reply.Text = true, wire.PlainText(err.Error())
		return reply
	}
	reply.Addrs, reply.TTL = addrs[:min(len(addrs), wire.MaxLeaseAddrs)], ttl
	return reply
}

// resolve returns the addresses that the broker may reach the host by now, and for how long. While the guard has no answer,
// those are returned that an earlier one has leased.
func (g *guardKeeper) resolve(ctx context.Context, host string) ([]netip.Addr, time.Duration, error) {
	own := g.book.policy().Broker
	if own == nil {
		return nil, 0, errors.New("there is nothing that the broker reaches")
	}
	if addrs := byItself(own, host); len(addrs) > 0 {
		return addrs, time.Minute, nil
	}
	match := own.Lookup(host)
	if !match.Allowed {
		return nil, 0, fmt.Errorf("%q is nothing that the broker reaches", host)
	}
	name := match.Name
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	m, err := g.askToResolve(ctx, name)
	open, left := g.leases.books.Of(firewall.Broker).Open(name)
	if err != nil {
		if len(open) > 0 {
			return open, min(left, time.Second), nil
		}
		return nil, 0, err
	}
	open = slices.DeleteFunc(open, func(a netip.Addr) bool { return !slices.Contains(m.Addrs, a) })
	if len(open) == 0 {
		return nil, 0, fmt.Errorf("%s: none of its addresses was let in", name)
	}
	return open, max(0, min(left, m.TTL)), nil
}

// byItself are the addresses of a host that own allows without a name that is resolved: an address, or of the hosts file.
func byItself(own *policy.Policy, host string) []netip.Addr {
	addrs := slices.Clone(own.Hosts(host))
	if a, err := netip.ParseAddr(host); err == nil {
		addrs = []netip.Addr{a.Unmap()}
	}
	return slices.DeleteFunc(addrs, func(a netip.Addr) bool {
		return !slices.ContainsFunc(own.Static, func(s policy.Static) bool {
			return s.Prefix.Contains(a) && own.DecideAddr(a, s.Port).Allowed
		})
	})
}

// askToResolve waits for the guard as long as ctx says.
func (g *guardKeeper) askToResolve(ctx context.Context, host string) (wire.Message, error) {
	select {
	case g.resolving <- struct{}{}:
	case <-ctx.Done():
		return wire.Message{}, errors.New("the guard does not answer")
	}
	answer, _, err := g.ask(wire.Message{Op: wire.OpResolve, Name: host}, nil)
	if answer == nil {
		<-g.resolving
		return wire.Message{}, err
	}
	// A place is free again when the answer has come, or the guard is gone.
	got := make(chan wire.Message, 1)
	go func() {
		m, ok := <-answer
		<-g.resolving
		if m.Err = m.Err || !ok; m.Err && m.Text == "" {
			m.Text = "the guard has ended"
		}
		got <- m
	}()
	if err != nil {
		return wire.Message{}, err
	}
	select {
	case m := <-got:
		if m.Err {
			return m, fmt.Errorf("%s: %s", host, wire.PlainText(m.Text))
		}
		return m, nil
	case <-ctx.Done():
		return wire.Message{}, errors.New("the guard does not answer")
	}
}
