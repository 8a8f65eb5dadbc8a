package lease

import (
	"maps"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

// Books are two ledgers: the agent's, and the broker's. What one has is nothing to the other, be it the same address.
// The zero value has none.
type Books struct{ both []*Ledger }

// NewBooks makes empty ledgers, as New does.
func NewBooks(p *policy.Policy, e *wire.Edition) Books {
	b := Books{[]*Ledger{New(p, e), New(nil, e)}}
	b.Of(firewall.Broker).broker = true
	b.Adopt(p)
	return b
}

// Of is the ledger with the leases of h.
func (b Books) Of(h firewall.Holder) *Ledger {
	if h == firewall.Broker {
		return b.both[1]
	}
	return b.both[0]
}

// Adopt is that of both.
func (b Books) Adopt(p *policy.Policy) (closed []firewall.Element) {
	return append(b.both[0].Adopt(p), b.both[1].Adopt(p.Broker)...)
}

func (b Books) Holds(e firewall.Element) bool { return b.Of(e.For).Holds(e) }
func (b Books) Knows(e firewall.Element) bool { return b.Of(e.For).Knows(e) }

// Leases are the live elements of both.
func (b Books) Leases() (out []firewall.Lease) {
	for _, l := range b.both {
		out = append(out, l.Leases()...)
	}
	return out
}

// ForgetLapsed is that of both.
func (b Books) ForgetLapsed(used map[firewall.Element]bool) {
	for _, l := range b.both {
		l.ForgetLapsed(used)
	}
}

// Renew is that of both. Nobody goes out to where a name is inspected: what the broker has open for the name counts.
func (b Books) Renew(used map[firewall.Element]bool, within, ttl time.Duration) (out []firewall.Lease) {
	used = maps.Clone(used)
	for _, e := range b.both[0].inspected(b.both[1].inUse(used)) {
		used[e] = true
	}
	for _, l := range b.both {
		out = append(out, l.Renew(used, within, ttl)...)
	}
	return out
}

// Sweep is that of both.
func (b Books) Sweep() (changes uint64) {
	for _, l := range b.both {
		changes += l.Sweep()
	}
	return changes
}

// Counts is how many names have leases, and how many elements are open.
func (b Books) Counts() (names, elements int) {
	for _, l := range b.both {
		n, e := l.Counts()
		names, elements = names+n, elements+e
	}
	return names, elements
}
