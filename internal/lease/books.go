package lease

import (
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

// Books are the ledgers of all holders, by holder. What is leased to one is nothing to another, be it the same address.
type Books []*Ledger

// NewBooks makes empty ledgers, as New does.
func NewBooks(p *policy.Policy, e *wire.Edition) Books {
	b := Books{New(p, e), New(nil, e)}
	b[firewall.Broker].holder = firewall.Broker
	b.Adopt(p)
	return b
}

// of is what of p decides about a holder's leases; nil: nothing is leased to it.
func of(p *policy.Policy, h firewall.Holder) *policy.Policy {
	if h == firewall.Broker {
		return p.Broker
	}
	return p
}

// Adopt is that of every ledger.
func (b Books) Adopt(p *policy.Policy) (closed []firewall.Element) {
	for h, l := range b {
		closed = append(closed, l.Adopt(of(p, firewall.Holder(h)))...)
	}
	return closed
}

func (b Books) Holds(e firewall.Element) bool { return b[e.For].Holds(e) }
func (b Books) Knows(e firewall.Element) bool { return b[e.For].Knows(e) }

// Leases are the live elements of all.
func (b Books) Leases() (out []firewall.Lease) {
	for _, l := range b {
		out = append(out, l.Leases()...)
	}
	return out
}

// ForgetLapsed is that of every ledger.
func (b Books) ForgetLapsed(used map[firewall.Element]bool) {
	for _, l := range b {
		l.ForgetLapsed(used)
	}
}

// Renew is that of every ledger.
func (b Books) Renew(used map[firewall.Element]bool, within, ttl time.Duration) (out []firewall.Lease) {
	for _, l := range b {
		out = append(out, l.Renew(used, within, ttl)...)
	}
	return out
}

// Sweep is that of every ledger.
func (b Books) Sweep() (changes uint64) {
	for _, l := range b {
		changes += l.Sweep()
	}
	return changes
}

// Counts is how many names have leases, and how many elements are open.
func (b Books) Counts() (names, elements int) {
	for _, l := range b {
		n, e := l.Counts()
		names, elements = names+n, elements+e
	}
	return names, elements
}
