package guard

import (
	"net/netip"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
)

// maxKnown is how many leases the guard remembers. When there are more, it begins anew.
const maxKnown = 8192

// known is what the guard remembers of the keeper's book, so that it need not ask for each connection. What is in it was
// in the book under this very edition, and for at least as long. Safe for concurrent use.
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

// note keeps what the keeper has answered: the edition that it looked at, and how much longer the lease lasts, counted
// from before it was asked.
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
