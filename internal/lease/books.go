package lease

import (
	"maps"
	"slices"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

// Books are two ledgers: the agent's and the broker's. What one has is nothing to the other, be it the same address. The
// zero value has none.
type Books struct{ all []*Ledger }

// NewBooks makes empty ledgers, as New does.
func NewBooks(p *policy.Policy, e *wire.Edition) Books {
	b := Books{[]*Ledger{New(p, e), New(nil, e)}}
	b.Of(firewall.Broker).sender = firewall.Broker
	b.Begin(p)
	return b
}

// Of is the ledger with the leases of h.
func (b Books) Of(h firewall.Holder) *Ledger {
	if h == firewall.Broker {
		return b.all[1]
	}
	return b.all[0]
}

// Begin is that of both. What is denied to the agent binds the broker as well.
func (b Books) Begin(p *policy.Policy) (closed []firewall.Element) {
	change := p.Since(b.all[0].inForce())
	return slices.Concat(b.all[0].Begin(p, change), b.all[1].Begin(p.Broker, change))
}

// Sift is that of both.
func (b Books) Sift() (closed []firewall.Element, moved []firewall.Lease, more bool) {
	for _, l := range b.all {
		c, m, another := l.Sift()
		closed, moved, more = append(closed, c...), append(moved, m...), more || another
	}
	return closed, moved, more
}

func (b Books) Holds(e firewall.Element) bool { return b.Of(e.For).Holds(e) }
func (b Books) Knows(e firewall.Element) bool { return b.Of(e.For).Knows(e) }

// Leases are the live elements of both.
func (b Books) Leases() (out []firewall.Lease) {
	for _, l := range b.all {
		out = append(out, l.Leases()...)
	}
	return out
}

// ForgetLapsed is that of both.
func (b Books) ForgetLapsed(used map[firewall.Element]bool, at time.Time) {
	for _, l := range b.all {
		l.ForgetLapsed(used, at)
	}
}

// Renew is that of both. Nobody goes out to where a name is inspected: what the broker has open for the name counts.
func (b Books) Renew(used map[firewall.Element]bool, within, ttl time.Duration) (out []firewall.Lease) {
	used = maps.Clone(used)
	for _, e := range b.all[0].inspected(b.all[1].inUse(used)) {
		used[e] = true
	}
	for _, l := range b.all {
		out = append(out, l.Renew(used, within, ttl)...)
	}
	return out
}

// Sweep is that of both.
func (b Books) Sweep() (end []firewall.Lease) {
	for _, l := range b.all {
		end = append(end, l.Sweep()...)
	}
	return end
}

// Longer is that of both.
func (b Books) Longer(leases []firewall.Lease, made time.Time) (out []firewall.Lease) {
	for _, l := range leases {
		out = append(out, b.Of(l.For).Longer([]firewall.Lease{l}, made)...)
	}
	return out
}

// Counts is how many names have leases, and how many elements are open.
func (b Books) Counts() (names, elements int) {
	for _, l := range b.all {
		n, e := l.Counts()
		names, elements = names+n, elements+e
	}
	return names, elements
}
