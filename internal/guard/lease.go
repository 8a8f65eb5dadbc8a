package guard

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
)

// admit asks the keeper to lease the addresses and waits for its word.
func (g *guard) admit(ctx context.Context, name string, addrs []netip.Addr, ttl time.Duration) ([]netip.Addr, error) {
	defer func(begun time.Time) { g.leases.Add(1); g.leaseNanos.Add(uint64(time.Since(begun))) }(time.Now())
	var admitted []netip.Addr
	for len(addrs) > 0 {
		n := min(len(addrs), wire.MaxLeaseAddrs)
		reply, err := g.ask(ctx, wire.Message{Op: wire.OpLease, Name: name, Addrs: addrs[:n], TTL: ttl})
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

// leasedTo asks the keeper whether addr is leased to this very name.
func (g *guard) leasedTo(ctx context.Context, name string, addr netip.AddrPort) (bool, error) {
	reply, err := g.ask(ctx, wire.Message{Op: wire.OpLeasedTo, Name: name, Addrs: []netip.Addr{addr.Addr()}, Port: addr.Port()})
	if err != nil {
		return false, fmt.Errorf("ask for the lease: %w", err)
	}
	return !reply.Err, nil
}

// direct asks the keeper whether addr may be connected to unseen, and if that is
// for a name's sake, whose.
func (g *guard) direct(ctx context.Context, addr netip.AddrPort) (string, bool, error) {
	reply, err := g.ask(ctx, wire.Message{Op: wire.OpDirect, Addrs: []netip.Addr{addr.Addr()}, Port: addr.Port()})
	if err != nil {
		return "", false, fmt.Errorf("ask for the address: %w", err)
	}
	return reply.Name, !reply.Err, nil
}
