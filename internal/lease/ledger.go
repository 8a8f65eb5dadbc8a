// Package lease keeps the book of leases: who holds which address until when.
package lease

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

// Ledger is the keeper's book of leases: which addresses are open, for which
// names, until when. The kernel's sets know addresses only; the ledger is what
// lets a name that leaves the policy take its addresses along.
//
// It never asks the guard what a name may open: its own policy says so. Safe
// for concurrent use.
type Ledger struct {
	mu       sync.Mutex
	policy   *policy.Policy
	perName  int // addresses
	total    int // elements
	names    map[string]*nameLeases
	elements map[firewall.Element]hold
	lapsed   lapsed
	wild     int    // elements that wildcard names hold
	changes  uint64 // counts what is worth publishing
	Now      func() time.Time
}

// hold is an element in the kernel: how many names have it open, and until when
// at the latest.
type hold struct {
	names   int
	expires time.Time
}

// nameLeases are the addresses of a name, few enough to be looked through.
type nameLeases struct {
	wildcard bool
	addrs    []addrLease
}

// find returns the place of an address, or -1.
func (n *nameLeases) find(a netip.Addr) int {
	return slices.IndexFunc(n.addrs, func(al addrLease) bool { return al.addr == a })
}

// opens says whether the name has the element open.
func (n *nameLeases) opens(e firewall.Element) bool {
	i := n.find(e.Addr)
	return i >= 0 && n.addrs[i].port(portOf(e)) != nil
}

type addrLease struct {
	addr      netip.Addr
	ports     []portLease
	since     time.Time // the first time, without a gap
	confirmed time.Time // the last time that a server named it
}

// portLease is a port of an address, which is renewed by itself.
type portLease struct {
	policy.Port
	expires time.Time
}

// port returns the lease of a port, nil if there is none.
func (a *addrLease) port(p policy.Port) *portLease {
	if i := slices.IndexFunc(a.ports, func(pl portLease) bool { return pl.Port == p }); i >= 0 {
		return &a.ports[i]
	}
	return nil
}

// expires is when the last of its ports does.
func (a *addrLease) expires() (last time.Time) {
	for _, p := range a.ports {
		if p.expires.After(last) {
			last = p.expires
		}
	}
	return last
}

// New makes an empty ledger.
func New(p *policy.Policy) *Ledger {
	limits := p.Settings().Limits
	return &Ledger{
		policy: p, perName: limits.AddrsPerName, total: min(limits.Leases, maxLeases),
		names: map[string]*nameLeases{}, elements: map[firewall.Element]hold{}, lapsed: lapsed{}, Now: time.Now,
	}
}

// maxLeases is what the kernel's set of one family holds.
const maxLeases = 65536

// MaxLease bounds what the guard may ask for: a lease that lives longer would
// outlive every TTL that the resolver hands out.
const MaxLease = 15 * time.Minute

// Lease books addrs for name. It returns the leases to give in the kernel and
// the addresses that were admitted. A name stays within its own share by letting
// its oldest addresses run out, so one name's answers never cost another name
// its lease; connections that are open to those addresses live on.
func (l *Ledger) Lease(name string, addrs []netip.Addr, ttl time.Duration) (open []firewall.Lease, admitted []netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	match := l.policy.Lookup(name)
	if !match.Allowed {
		return nil, nil
	}
	name = match.Name
	ttl = min(max(ttl, time.Second), MaxLease)
	nl := l.names[name]
	if nl == nil {
		nl = &nameLeases{wildcard: match.Wildcard != nil, addrs: make([]addrLease, 0, len(addrs))}
	}
	var evicted []firewall.Element
	for _, a := range addrs {
		if slices.Contains(admitted, a) {
			continue
		}
		ports := l.policy.Admit(name, a)
		if len(ports) == 0 || !l.room(nl, a, len(ports)) {
			continue
		}
		now := l.Now()
		fresh := addrLease{addr: a, since: now, confirmed: now}
		for _, p := range ports {
			fresh.ports = append(fresh.ports, portLease{p, now.Add(ttl)})
		}
		if i := nl.find(a); i >= 0 {
			old := nl.addrs[i]
			fresh.since = old.since
			l.release(nl, i)
			for i := range fresh.ports {
				if was := old.port(fresh.ports[i].Port); was != nil && was.expires.After(fresh.ports[i].expires) {
					fresh.ports[i].expires = was.expires // a client was promised as much
				}
			}
		} else if len(nl.addrs) >= l.perName {
			evicted = append(evicted, l.evictOldest(name, nl, admitted)...)
			if len(nl.addrs) >= l.perName {
				continue // all of them are of this very answer
			}
		}
		nl.addrs = append(nl.addrs, fresh)
		for _, p := range fresh.ports {
			open = append(open, l.hold(nl, element(a, p.Port), p.expires))
		}
		admitted = append(admitted, a)
	}
	if len(nl.addrs) > 0 {
		l.names[name] = nl
	}
	for _, e := range evicted {
		if l.elements[e].names == 0 {
			open = append(open, firewall.Lease{Element: e, TTL: time.Second})
		}
	}
	return open, admitted
}

// hold books one more name on e. An element that several names share lives as
// long as the longest of their leases.
func (l *Ledger) hold(nl *nameLeases, e firewall.Element, expires time.Time) firewall.Lease {
	h := l.elements[e]
	h.names++
	l.changes++
	if expires.After(h.expires) {
		h.expires = expires
	}
	l.elements[e] = h
	if nl.wildcard {
		l.wild++
	}
	return firewall.Lease{Element: e, TTL: h.expires.Sub(l.Now())}
}

// room says whether n more elements fit. Wildcard names, which an attacker can
// make up, may fill no more than half.
func (l *Ledger) room(nl *nameLeases, a netip.Addr, n int) bool {
	if nl.find(a) >= 0 { // it is renewed
		return true
	}
	if len(l.elements)+n > l.total {
		return false
	}
	return !nl.wildcard || l.wild+n <= l.total/2
}

// release takes the address at i off a name and returns the elements that no name
// holds any more. Those behind it move up: who takes several goes from the end.
func (l *Ledger) release(nl *nameLeases, i int) []firewall.Element {
	var free []firewall.Element
	al := nl.addrs[i]
	l.changes++
	for _, p := range al.ports {
		free = append(free, l.unhold(nl, element(al.addr, p.Port))...)
	}
	nl.addrs = slices.Delete(nl.addrs, i, i+1)
	return free
}

// unhold books one name less on e, and returns it if that was the last.
func (l *Ledger) unhold(nl *nameLeases, e firewall.Element) []firewall.Element {
	if nl.wildcard {
		l.wild--
	}
	h := l.elements[e]
	if h.names--; h.names > 0 {
		l.elements[e] = h
		return nil
	}
	delete(l.elements, e)
	return []firewall.Element{e}
}

func (l *Ledger) evictOldest(name string, nl *nameLeases, keep []netip.Addr) []firewall.Element {
	oldest := -1
	for i, al := range nl.addrs {
		if !slices.Contains(keep, al.addr) && (oldest < 0 || al.expires().Before(nl.addrs[oldest].expires())) {
			oldest = i
		}
	}
	if oldest < 0 {
		return nil
	}
	for _, p := range nl.addrs[oldest].ports {
		l.lapsed.add(element(nl.addrs[oldest].addr, p.Port), name)
	}
	return l.release(nl, oldest)
}

// RevokeName closes a name: its lease failed half-way, or a person said so.
func (l *Ledger) RevokeName(name string) []firewall.Element {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drop(l.policy.Lookup(name).Name)
}

func (l *Ledger) drop(name string) []firewall.Element {
	nl := l.names[name]
	if nl == nil {
		return nil
	}
	var free []firewall.Element
	for i := range slices.Backward(nl.addrs) {
		free = append(free, l.release(nl, i)...)
	}
	delete(l.names, name)
	return free
}

// Sweep forgets what has expired; the kernel has done so by itself. It returns how
// much has changed so far.
func (l *Ledger) Sweep() (changes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.Now()
	for name, nl := range l.names {
		for i := range slices.Backward(nl.addrs) {
			al := &nl.addrs[i]
			over := func(p portLease) bool { return now.After(p.expires) }
			for _, p := range al.ports {
				if over(p) {
					l.lapsed.add(element(al.addr, p.Port), name)
					l.unhold(nl, element(al.addr, p.Port))
					l.changes++
				}
			}
			if al.ports = slices.DeleteFunc(al.ports, over); len(al.ports) == 0 {
				nl.addrs = slices.Delete(nl.addrs, i, i+1)
			}
		}
		if len(nl.addrs) == 0 {
			delete(l.names, name)
		}
	}
	return l.changes
}

// Adopt changes the policy and returns the elements that it no longer admits.
// What it admits still, it keeps, with the ports of the new policy.
func (l *Ledger) Adopt(p *policy.Policy) (closed []firewall.Element) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.policy = p
	limits := p.Settings().Limits
	l.perName, l.total = limits.AddrsPerName, min(limits.Leases, maxLeases)
	closed = l.lapsed.adopt(p)
	for name, nl := range l.names {
		match := p.Lookup(name)
		for i, al := range slices.Backward(nl.addrs) {
			var ports []policy.Port
			if match.Allowed {
				ports = p.Admit(name, al.addr)
			}
			kept := slices.DeleteFunc(slices.Clone(al.ports), func(q portLease) bool { return !slices.Contains(ports, q.Port) })
			if len(kept) == len(al.ports) {
				continue
			}
			closed = append(closed, l.release(nl, i)...)
			if len(kept) == 0 {
				continue
			}
			al.ports = kept
			nl.addrs = append(nl.addrs, al)
			for _, q := range kept {
				l.hold(nl, element(al.addr, q.Port), q.expires)
			}
		}
		if len(nl.addrs) == 0 {
			delete(l.names, name)
		}
	}
	return slices.DeleteFunc(closed, func(e firewall.Element) bool { return l.elements[e].names > 0 })
}

// Leases are all live elements with the time that they have left: what a
// rebuilt table must hold.
func (l *Ledger) Leases() []firewall.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.Now()
	out := make([]firewall.Lease, 0, len(l.elements))
	for e, h := range l.elements {
		if ttl := h.expires.Sub(now); ttl > 0 {
			out = append(out, firewall.Lease{Element: e, TTL: ttl})
		}
	}
	return out
}

// LeasedTo says whether this very name has the element open.
func (l *Ledger) LeasedTo(name string, e firewall.Element) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	nl := l.names[l.policy.Lookup(name).Name]
	return nl != nil && nl.opens(e) && nl.addrs[nl.find(e.Addr)].port(portOf(e)).expires.After(l.Now())
}

// Holder returns a name that has the element open, the first of several; "" if
// there is none.
func (l *Ledger) Holder(e firewall.Element) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := ""
	if l.elements[e].names == 0 {
		return first
	}
	for name, nl := range l.names {
		if (first == "" || name < first) && nl.opens(e) {
			first = name
		}
	}
	return first
}

// Holds says whether some name has the element open.
func (l *Ledger) Holds(e firewall.Element) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.elements[e].names > 0
}

// Counts is how many names have leases, and how many elements are open.
func (l *Ledger) Counts() (names, elements int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.names), len(l.elements)
}

func element(a netip.Addr, p policy.Port) firewall.Element {
	return firewall.Element{Addr: a, Proto: uint8(p.Proto), Port: p.Number}
}

func portOf(e firewall.Element) policy.Port {
	return policy.Port{Proto: policy.Proto(e.Proto), Number: e.Port}
}
