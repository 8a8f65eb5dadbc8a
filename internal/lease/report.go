package lease

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
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
	On      string     `json:"ports"`            // 443/tcp 80/tcp
	Direct  string     `json:"direct,omitempty"` // of these, what would pass the name gate and goes past it
	Since   time.Time  `json:"since,omitzero"`
	Expires time.Time  `json:"expires,omitzero"`
}

// Report is nil if there is nothing new.
func (b Books) Report(before uint64) (*Report, uint64) {
	var now uint64
	for _, l := range b.all {
		now += l.changed()
	}
	if now == before {
		return nil, before
	}
	r := &Report{Version: 1}
	r.Names, r.More = b.Of(firewall.Agent).open()
	if names, _ := b.Of(firewall.Broker).open(); len(names) > 0 {
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
	// Of tens of thousands, most are left out at the first look: this is done each second in which any lease changes.
	var all []lasting
	count, cut := 0, false
	for _, nl := range l.names {
		if len(nl.leases) == 0 {
			continue
		}
		count++
		n := lasting{nl, 0}
		for _, o := range nl.leases {
			n.until = max(n.until, o.expires)
		}
		if cut && n.compare(all[maxPublishedNames-1]) > 0 {
			continue
		}
		if all = append(all, n); len(all) == 2*maxPublishedNames {
			slices.SortFunc(all, lasting.compare)
			all, cut = all[:maxPublishedNames], true
		}
	}
	slices.SortFunc(all, lasting.compare)
	all = all[:min(len(all), maxPublishedNames)]
	names = []Name{}
	for _, nl := range all {
		names = append(names, Name{Name: nl.name, Addrs: l.addresses(nl.nameLeases)})
	}
	return names, count - len(all)
}

// lasting is a name, and until when its longest lease lasts.
type lasting struct {
	*nameLeases
	until time.Duration
}

// compare puts those first that last longest.
func (n lasting) compare(o lasting) int {
	return cmp.Or(cmp.Compare(o.until, n.until), strings.Compare(n.name, o.name))
}

func (l *Ledger) addresses(n *nameLeases) (all []Address) {
	for _, o := range n.leases {
		addr, port := o.Addr, portOf(o.Element)
		i := slices.IndexFunc(all, func(a Address) bool { return a.Addr == addr })
		if i < 0 {
			i = len(all)
			all = append(all, Address{Addr: addr, Since: l.time(o.since)})
		}
		a := &all[i]
		a.On = strings.TrimSpace(a.On + " " + port.String())
		if (port == policy.HTTP || port == policy.HTTPS) && l.past(o.Element) {
			a.Direct = strings.TrimSpace(a.Direct + " " + port.String())
		}
		if ends := l.time(o.expires); ends.After(a.Expires) {
			a.Expires = ends
		}
	}
	slices.SortFunc(all, func(a, b Address) int { return a.Addr.Compare(b.Addr) })
	return all
}

// past says whether e goes past the gate: no name that is looked into has the address as well.
func (l *Ledger) past(e firewall.Element) bool {
	is := e.For == firewall.Agent
	for _, e.For = range []firewall.Holder{firewall.Gated, firewall.Inspected} {
		is = is && l.elements[e].names == 0
	}
	return is
}
