// Package lease keeps the book of leases: who holds which address until when.
package lease

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

// Ledger is the keeper's book of leases. The kernel's sets know addresses only; the
// ledger is what lets a name that leaves the policy take its addresses along. It never
// asks the guard what a name may open: its own policy says so. Safe for concurrent use.
type Ledger struct {
	mu       sync.Mutex
	policy   *policy.Policy
	sender   firewall.Holder // whose leases it has: the broker's; else the agent's, whoever goes out for it
	perName  int             // addresses
	total    int             // elements
	names    map[string]*nameLeases
	elements map[firewall.Element]hold
	lapsed   lapsed
	judging  judging
	wild     int    // elements that wildcard names hold
	changes  uint64 // counts what is worth publishing
	edition  *wire.Edition
	began    time.Time
	Now      func() time.Time
}

// hold is an element in the kernel: how many names have it open, and until when the kernel was told to keep it. That may be
// longer than any of them has it, once others have gone.
type hold struct {
	names   int32
	expires time.Duration
}

// nameLeases are what a name has open, few enough to be looked through.
type nameLeases struct {
	name     string
	wildcard bool
	judged   uint32 // by which policy, see judging
	leases   []nameLease
}

// nameLease is an element that a name has open. Each port is renewed by itself.
type nameLease struct {
	firewall.Element
	expires   time.Duration
	since     time.Duration // the first time that the name had the address, without a gap
	confirmed time.Duration // the last time that a server named it
}

// find returns the lease of an element, whoever goes out there; nil if there is none.
func (n *nameLeases) find(e firewall.Element) *nameLease {
	same := func(nl nameLease) bool { e.For = nl.For; return nl.Element == e }
	if i := slices.IndexFunc(n.leases, same); i >= 0 {
		return &n.leases[i]
	}
	return nil
}

// ends tells of each address when the last of its ports expires.
func (n *nameLeases) ends() map[netip.Addr]time.Duration {
	ends := map[netip.Addr]time.Duration{}
	for _, nl := range n.leases {
		ends[nl.Addr] = max(ends[nl.Addr], nl.expires)
	}
	return ends
}

// now is what has passed since the book was begun. It is monotonic, as the clock of the kernel's sets is.
func (l *Ledger) now() time.Duration { return l.Now().Sub(l.began) }

// time is what the clock of people shows at a time of the book, as it goes now: it may have been set since the book was
// begun.
func (l *Ledger) time(at time.Duration) time.Time {
	now := l.Now()
	return now.Add(at - now.Sub(l.began))
}

// New makes an empty ledger. The edition moves whenever a lease is struck out before its time.
func New(p *policy.Policy, e *wire.Edition) *Ledger {
	l := &Ledger{names: map[string]*nameLeases{}, elements: map[firewall.Element]hold{}, lapsed: lapsed{}, edition: e, began: time.Now(), Now: time.Now}
	l.policy = new(policy.Policy)
	l.Begin(p, policy.Change{})
	l.judging.first = policy.Change{} // there is nothing to judge
	return l
}

// maxLeases is what the kernel's set of one family holds.
const maxLeases = 65536

// MaxLease bounds what the guard may ask for, by the TTLs that the resolver hands out.
const MaxLease = 15 * time.Minute

// Lease books addrs for name. It returns the leases to give in the kernel and the addresses that were admitted. A name
// stays within its share by letting its oldest addresses run out (connections live on), at no other's cost.
func (l *Ledger) Lease(name string, addrs []netip.Addr, ttl time.Duration) (open []firewall.Lease, admitted []netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	match := l.policy.Lookup(name)
	if !match.Allowed {
		return nil, nil
	}
	name = match.Name
	ttl = min(max(ttl, time.Second), MaxLease)
	nl := l.at(name)
	if nl == nil {
		nl = &nameLeases{name: name, wildcard: match.Wildcard != nil, judged: l.judging.policies}
	}
	var evicted []freed
	for _, a := range addrs {
		ports := l.policy.Admit(name, a)
		old := slices.IndexFunc(nl.leases, func(o nameLease) bool { return o.Addr == a })
		if slices.Contains(admitted, a) || len(ports) == 0 || old < 0 && !l.room(nl, len(ports)) {
			continue
		}
		now := l.now()
		since := now
		if old >= 0 {
			since = nl.leases[old].since
		} else if len(nl.ends()) >= l.perName {
			evicted = append(evicted, l.evictOldest(nl, admitted)...)
			if len(nl.ends()) >= l.perName {
				continue // all of them are of this very answer
			}
		}
		for _, p := range ports {
			open = append(open, l.book(nl, nameLease{l.element(name, a, p), now + ttl, since, now}))
		}
		admitted = append(admitted, a)
	}
	if len(nl.leases) > 0 {
		l.names[name] = nl
	}
	for _, e := range evicted {
		if l.elements[e.Element].names == 0 { // else the same answer has taken it again
			open = append(open, e.running())
		}
	}
	return open, admitted
}

// room says whether n more elements fit. Wildcard names, which an attacker can make up, may fill no more than half.
func (l *Ledger) room(nl *nameLeases, n int) bool {
	return len(l.elements)+n <= l.total && (!nl.wildcard || l.wild+n <= l.total/2)
}

// book writes a lease down, and returns the one to give in the kernel.
func (l *Ledger) book(nl *nameLeases, fresh nameLease) firewall.Lease {
	if old := nl.find(fresh.Element); old != nil {
		fresh.expires = max(old.expires, fresh.expires) // a client was promised as much
		*old = fresh
		return l.extend(fresh)
	}
	nl.leases = append(nl.leases, fresh)
	l.hold(nl, fresh.Element, 1)
	return l.extend(fresh)
}

// extend has the element of nl live for as long as the longest lease of its names.
func (l *Ledger) extend(nl nameLease) firewall.Lease {
	l.changes++
	h := l.elements[nl.Element]
	if h.names == 1 || nl.expires > h.expires {
		h.expires = nl.expires
	}
	l.elements[nl.Element] = h
	return firewall.Lease{Element: nl.Element, TTL: h.expires - l.now()}
}

// hold books n names more on e, and says whether none is left.
func (l *Ledger) hold(nl *nameLeases, e firewall.Element, n int) (free bool) {
	if nl.wildcard {
		l.wild += n
	}
	h := l.elements[e]
	h.names += int32(n)
	l.elements[e] = h
	if h.names == 0 {
		delete(l.elements, e)
	}
	return h.names == 0
}

// freed is an element that no name holds any more, and until when the kernel was told to keep it.
type freed struct {
	firewall.Element
	until time.Duration
}

// running has the kernel let e run out. What is under way goes on, which it doesn't when e is taken out.
func (f freed) running() firewall.Lease {
	return firewall.Lease{Element: f.Element, TTL: time.Second}
}

// strike takes from a name what is over, and returns the elements that no name holds
// any more. What has lapsed may go on where it is under way.
func (l *Ledger) strike(nl *nameLeases, lapse bool, over func(nameLease) bool) (free []freed) {
	now := l.now()
	nl.leases = slices.DeleteFunc(nl.leases, func(o nameLease) bool {
		if !over(o) {
			return false
		}
		if o.expires > now {
			l.edition.Add(1)
		}
		l.changes++
		if lapse {
			l.lapsed.add(o.Element, nl.name, nl.judged, now)
		}
		until := l.elements[o.Element].expires
		if l.hold(nl, o.Element, -1) {
			free = append(free, freed{o.Element, until})
		}
		return true
	})
	if len(nl.leases) == 0 {
		delete(l.names, nl.name)
	}
	return free
}

// evictOldest lets the address that would end first go, of those that are not to be kept.
func (l *Ledger) evictOldest(nl *nameLeases, keep []netip.Addr) []freed {
	ends := nl.ends()
	var oldest netip.Addr
	for _, o := range nl.leases {
		if a := o.Addr; !slices.Contains(keep, a) && (!oldest.IsValid() || ends[a] < ends[oldest]) {
			oldest = a
		}
	}
	if !oldest.IsValid() {
		return nil
	}
	return l.strike(nl, true, func(o nameLease) bool { return o.Addr == oldest })
}

// RevokeName closes a name: its lease failed half-way, or a person said so.
func (l *Ledger) RevokeName(name string) (closed []firewall.Element) {
	l.mu.Lock()
	defer l.mu.Unlock()
	nl := l.names[l.policy.Lookup(name).Name]
	if nl == nil {
		return nil
	}
	for _, f := range l.strike(nl, false, func(nameLease) bool { return true }) {
		closed = append(closed, f.Element)
	}
	return closed
}

// Sweep forgets what has expired. The kernel has done so by itself, but for what it was told to keep for another name,
// which has gone since: that is returned, to be given in the kernel.
func (l *Ledger) Sweep() (end []firewall.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for _, nl := range l.names {
		for _, f := range l.strike(nl, true, func(o nameLease) bool { return now > o.expires }) {
			if f.until > now {
				end = append(end, f.running())
			}
		}
	}
	return end
}

// Leases are all live elements: what a rebuilt table must hold.
func (l *Ledger) Leases() []firewall.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	out := make([]firewall.Lease, 0, len(l.elements))
	for e, h := range l.elements {
		if ttl := h.expires - now; ttl > 0 {
			out = append(out, firewall.Lease{Element: e, TTL: ttl})
		}
	}
	return out
}

// LeasedTo says for how long this very name still has the element open; 0 if it has not. It is not to be struck out of
// this edition, which goes with the answer.
func (l *Ledger) LeasedTo(name string, e firewall.Element) (left time.Duration, edition uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if nl := l.at(l.policy.Lookup(name).Name); nl != nil {
		if lease := nl.find(e); lease != nil {
			left = max(0, lease.expires-l.now())
		}
	}
	return left, l.edition.Load()
}

// Beside returns where else this very name has the port of e open.
func (l *Ledger) Beside(name string, e firewall.Element) (addrs []netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if nl := l.names[l.policy.Lookup(name).Name]; nl != nil {
		for _, o := range nl.leases {
			if there := o.Element; there.Addr != e.Addr && portOf(there) == portOf(e) && o.expires > l.now() {
				addrs = append(addrs, there.Addr)
			}
		}
	}
	return addrs
}

// Open returns the addresses that this very name has open, and how long the first of them to end is.
func (l *Ledger) Open(name string) (addrs []netip.Addr, left time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	nl := l.at(l.policy.Lookup(name).Name)
	if nl == nil {
		return nil, 0
	}
	left = MaxLease
	for _, o := range nl.leases {
		if d := o.expires - l.now(); d > 0 {
			left = min(left, d)
			if a := o.Addr; !slices.Contains(addrs, a) {
				addrs = append(addrs, a)
			}
		}
	}
	return addrs, left
}

// Holder returns the first name that has the element open, to any that the guard goes to; "" if there is none. One that
// is looked into comes before others: what is connected to may be it.
func (l *Ledger) Holder(e firewall.Element) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e.For = range []firewall.Holder{firewall.Gated, firewall.Agent} {
		first := ""
		if l.elements[e].names == 0 {
			continue
		}
		for name, nl := range l.names {
			if nl.find(e) == nil || first != "" && first < name {
				continue
			}
			l.judge(nl)
			if o := nl.find(e); o != nil && o.For == e.For {
				first = name
			}
		}
		if first != "" {
			return first
		}
	}
	return ""
}

// Holds says whether some name has the element open, or Sift has still to return it.
func (l *Ledger) Holds(e firewall.Element) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holds(e)
}

func (l *Ledger) holds(e firewall.Element) bool {
	_, out := l.judging.out[e]
	return out || l.elements[e].names > 0
}

// Longer returns what the book has for longer than leases say, which were made at that time: another name has taken the
// element meanwhile.
func (l *Ledger) Longer(leases []firewall.Lease, made time.Time) (out []firewall.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, told := range leases {
		h := l.elements[told.Element]
		if h.names > 0 && h.expires > made.Sub(l.began)+told.TTL {
			out = append(out, firewall.Lease{Element: told.Element, TTL: h.expires - l.now()})
		}
	}
	return out
}

// Counts is how many names have leases, and how many elements are open.
func (l *Ledger) Counts() (names, elements int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.names), len(l.elements)
}

// element is what a name opens, for whoever goes out there.
func (l *Ledger) element(name string, a netip.Addr, p policy.Port) firewall.Element {
	e := firewall.Element{Addr: a, Proto: uint8(p.Proto), Port: p.Number, For: l.sender}
	if l.sender == firewall.Agent {
		e.For = goesOut[l.policy.Way(name, p)]
		if e.For == firewall.Gated && l.policy.Proxied(name, p) {
			e.For = firewall.Inspected // nobody goes there: the broker goes to the proxy
		}
	}
	return e
}

// same is what a name that has e opens there by now.
func (l *Ledger) same(name string, e firewall.Element) firewall.Element {
	return l.element(name, e.Addr, portOf(e))
}

// goesOut says who goes out for the agent.
var goesOut = [...]firewall.Holder{policy.ByAddress: firewall.Agent, policy.Gated: firewall.Gated, policy.Inspected: firewall.Inspected}

func portOf(e firewall.Element) policy.Port {
	return policy.Port{Proto: policy.Proto(e.Proto), Number: e.Port}
}
