package lease

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/pkg/firewall"
)

// maxPublishedNames is how many names it holds, those that last longest.
const maxPublishedNames = 1000

// Report is what is published of the ledger.
type Report struct {
	Version int    `json:"version"`
	Names   []Name `json:"names"`
	More    int    `json:"more,omitempty"`   // names that are left out
	Broker  []Name `json:"broker,omitempty"` // what is open to the broker alone
}

// Name is a name with its open addresses.
type Name struct {
	Name  string    `json:"name"`
	Addrs []Address `json:"addrs"`
}

// Address is an open address.
type Address struct {
	Addr    netip.Addr `json:"addr"`
	On      string     `json:"ports"` // 443/tcp 80/tcp
	Since   time.Time  `json:"since,omitzero"`
	Expires time.Time  `json:"expires,omitzero"`
}

// Report is nil if there is nothing new.
func (b Books) Report(before uint64) (*Report, uint64) {
	var now uint64
	for _, l := range b {
		now += l.changed()
	}
	if now == before {
		return nil, before
	}
	r := &Report{Version: 1}
	r.Names, r.More = b[firewall.Agent].open()
	if names, _ := b[firewall.Broker].open(); len(names) > 0 {
		r.Broker = names
	}
	return r, now
}

func (l *Ledger) changed() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changes
}

// open are the names with open addresses, and how many are left out.
func (l *Ledger) open() (names []Name, more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lasts := make(map[string]time.Time, len(l.names))
	for name, nl := range l.names {
		for _, o := range nl.leases {
			lasts[name] = later(lasts[name], o.expires)
		}
	}
	all := slices.SortedFunc(maps.Keys(lasts), func(a, b string) int {
		return cmp.Or(lasts[b].Compare(lasts[a]), strings.Compare(a, b))
	})
	names = []Name{}
	if n := len(all) - maxPublishedNames; n > 0 {
		all, more = all[:maxPublishedNames], n
	}
	for _, name := range all {
		names = append(names, Name{Name: name, Addrs: l.names[name].addresses()})
	}
	return names, more
}

func (n *nameLeases) addresses() (all []Address) {
	for _, o := range n.leases {
		i := slices.IndexFunc(all, func(a Address) bool { return a.Addr == o.Addr })
		if i < 0 {
			i = len(all)
			all = append(all, Address{Addr: o.Addr, Since: o.since})
		}
		a := &all[i]
		a.On = strings.TrimSpace(a.On + " " + portOf(o.Element).String())
		a.Expires = later(a.Expires, o.expires)
	}
	slices.SortFunc(all, func(a, b Address) int { return a.Addr.Compare(b.Addr) })
	return all
}
