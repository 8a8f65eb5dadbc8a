package guard

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/policy"
)

// admit asks the keeper to lease the addresses and waits for its word.
func (g *guard) admit(ctx context.Context, name string, addrs []netip.Addr, ttl time.Duration) ([]netip.Addr, error) {
	defer func(begun time.Time) { g.leases.Add(1); g.leaseNanos.Add(uint64(time.Since(begun))) }(time.Now())
	var admitted []netip.Addr
	asked := time.Now()
	for len(addrs) > 0 {
		n := min(len(addrs), wire.MaxLeaseAddrs)
		reply, err := g.ask(ctx, wire.Message{Op: wire.OpLease, Name: name, Addrs: addrs[:n], TTL: ttl})
		if err != nil {
			return nil, fmt.Errorf("lease: %w", err)
		}
		if reply.Err {
			return nil, errors.New("the keeper could not lease the address")
		}
		for _, a := range reply.Addrs {
			g.noteLease(name, a, reply.Edition, asked.Add(reply.TTL))
		}
		admitted = append(admitted, reply.Addrs...)
		addrs = addrs[n:]
	}
	return admitted, nil
}

// noteLease remembers a lease that was given, for the ports of the name gate that
// the keeper has booked with it.
func (g *guard) noteLease(name string, a netip.Addr, edition uint64, until time.Time) {
	for _, p := range g.policy.Load().Admit(name, a) {
		if p == policy.HTTP || p == policy.HTTPS {
			g.known.note(name, netip.AddrPortFrom(a, p.Number), edition, until)
		}
	}
}

// leasedTo says whether addr is leased to this very name: it asks the keeper, unless
// it is known for certain.
func (g *guard) leasedTo(ctx context.Context, name string, addr netip.AddrPort) (bool, error) {
	if g.known.leasedTo(name, addr) {
		return true, nil
	}
	asked := time.Now()
	reply, err := g.ask(ctx, wire.Message{Op: wire.OpLeasedTo, Name: name, Addrs: []netip.Addr{addr.Addr()}, Port: addr.Port()})
	if err != nil {
		return false, fmt.Errorf("ask for the lease: %w", err)
	}
	if reply.Err {
		return false, nil
	}
	g.known.note(name, addr, reply.Edition, asked.Add(reply.TTL))
	return true, nil
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

// maxKnown is how many leases the guard remembers. When there are more, it begins
// anew.
const maxKnown = 8192

// known is what the guard remembers of the keeper's book, so that it need not ask
// for each connection. What is in it was in the book under this very edition, and
// for at least as long. Safe for concurrent use.
type known struct {
	edition *wire.Edition
	now     func() time.Time

	mu     sync.Mutex
	leases map[knownLease]knownUntil
}

type knownLease struct {
	name string
	addr netip.AddrPort
}

type knownUntil struct {
	edition uint64
	until   time.Time
}

func newKnown(e *wire.Edition) *known {
	return &known{edition: e, now: time.Now, leases: map[knownLease]knownUntil{}}
}

// leasedTo says whether the book has addr for name for certain.
func (k *known) leasedTo(name string, addr netip.AddrPort) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.leases[knownLease{name, addr}]
	return ok && l.edition == k.edition.Load() && k.now().Before(l.until)
}

// note keeps what the keeper has answered: the edition that it looked at, and
// how much longer the lease lasts, counted from before it was asked.
func (k *known) note(name string, addr netip.AddrPort, edition uint64, until time.Time) {
	if edition != k.edition.Load() || !k.now().Before(until) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	key := knownLease{name, addr}
	if _, ok := k.leases[key]; !ok && len(k.leases) >= maxKnown {
		clear(k.leases)
	}
	k.leases[key] = knownUntil{edition, until}
}
