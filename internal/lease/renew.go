package lease

import (
	"time"

	"github.com/agent-init/agent-init/pkg/firewall"
)

// Renewal looks ahead further than it sleeps, so that no lease in use can end
// between two looks.
const (
	RenewEvery  = 15 * time.Second
	RenewWindow = 45 * time.Second
	RenewFor    = 2 * time.Minute
)

// Renew extends the leases of elements that connections still use and that end
// within the window, so that a pooled client which reconnects without asking DNS
// again is not cut off. It does so for a day after a server has named the address for
// the last time: by then it may be somebody else's.
func (l *Ledger) Renew(used map[firewall.Element]bool, within, ttl time.Duration) []firewall.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.Now()
	var leases []firewall.Lease
	for _, nl := range l.names {
		for i := range nl.addrs {
			al := &nl.addrs[i]
			expires := now.Add(ttl)
			if end := al.confirmed.Add(renewedFor); end.Before(expires) {
				expires = end
			}
			for j := range al.ports {
				e := element(al.addr, al.ports[j].Port)
				if !used[e] || !al.ports[j].expires.Before(now.Add(within)) || !al.ports[j].expires.Before(expires) {
					continue
				}
				al.ports[j].expires = expires
				l.changes++
				h := l.elements[e]
				if expires.After(h.expires) { // else another name was promised more
					h.expires = expires
				}
				l.elements[e] = h
				leases = append(leases, firewall.Lease{Element: e, TTL: h.expires.Sub(now)})
			}
		}
	}
	return leases
}

// renewedFor is how long connections keep an address open, see renew.
const renewedFor = 24 * time.Hour
