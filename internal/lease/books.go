package lease

import (
	"maps"
	"slices"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

// Books are three ledgers: the agent's, the broker's, and the exporter's. What one has is nothing to the others, be it the
// same address. The zero value has none.
type Books struct{ all []*Ledger }

// NewBooks makes empty ledgers, as New does.
func NewBooks(p *policy.Policy, e *wire.Edition) Books {
	b := Books{[]*Ledger{New(p, e), New(nil, e), New(nil, e)}}
	for _, h := range []firewall.Holder{firewall.Broker, firewall.Exporter} {
		b.Of(h).sender = h
	}
	b.Adopt(p)
	return b
}

// Of is the ledger with the leases of h.
func (b Books) Of(h firewall.Holder) *Ledger {
	switch h {
	case firewall.Broker:
		return b.all[1]
	case firewall.Exporter:
		return b.all[2]
	}
	return b.all[0]
}

// Adopt is that of all.
func (b Books) Adopt(p *policy.Policy) (closed []firewall.Element) {
	return slices.Concat(b.all[0].Adopt(p), b.all[1].Adopt(p.Broker), b.all[2].Adopt(p.Exporter))
}

func (b Books) Holds(e firewall.Element) bool { return b.Of(e.For).Holds(e) }
func (b Books) Knows(e firewall.Element) bool { return b.Of(e.For).Knows(e) }

// Leases are the live elements of all.
func (b Books) Leases() (out []firewall.Lease) {
	for _, l := range b.all {
		out = append(out, l.Leases()...)
	}
	return out
}

// ForgetLapsed is that of all.
func (b Books) ForgetLapsed(used map[firewall.Element]bool) {
	for _, l := range b.all {
		l.ForgetLapsed(used)
	}
}

// Renew is that of all. Nobody goes out to where a name is inspected: what the broker has open for the name counts.
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

// Sweep is that of all.
func (b Books) Sweep() {
	for _, l := range b.all {
		l.Sweep()
	}
}

// Counts is how many names have leases, and how many elements are open.
func (b Books) Counts() (names, elements int) {
	for _, l := range b.all {
		n, e := l.Counts()
		names, elements = names+n, elements+e
	}
	return names, elements
}
