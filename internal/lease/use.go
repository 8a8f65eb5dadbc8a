package lease

import (
	"slices"
	"time"

	"github.com/agent-init/agent-init/pkg/firewall"
)

// lapsed are elements whose leases are over, and the names that had them. What had
// answered by then may go on, so whoever ends a name has to know them too. An element
// that is in no book at all is cut off with the next change of the policy.
type lapsed map[firewall.Element]lapsedNames

type lapsedNames struct {
	names  []string
	judged uint32        // by which policy, the oldest of theirs
	since  time.Duration // the last of them has lapsed
}

// The bounds of what is remembered. What finds no room lives until the next change.
const (
	maxLapsed      = maxLeases
	maxLapsedNames = 16 // for an element
)

func (s lapsed) add(e firewall.Element, name string, judged uint32, now time.Duration) {
	l, there := s[e]
	if !there && len(s) >= maxLapsed {
		return
	}
	if l.since = now; !there || judged < l.judged {
		l.judged = judged
	}
	if len(l.names) < maxLapsedNames && !slices.Contains(l.names, name) {
		l.names = append(l.names, name)
	}
	s[e] = l
}

// Knows says whether some name has the element open, or had it and may keep what is under way there.
func (l *Ledger) Knows(e firewall.Element) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holds(e) || len(l.lapsed[e].names) > 0
}

// ForgetLapsed forgets those that nothing was under way to at that time. What has lapsed since may be used all the same.
func (l *Ledger) ForgetLapsed(used map[firewall.Element]bool, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	listed := at.Sub(l.began)
	for e, o := range l.lapsed {
		if !used[e] && o.since < listed {
			delete(l.lapsed, e)
		}
	}
}

// Renewal looks ahead further than it sleeps, so that no lease in use can end between two looks.
const (
	RenewEvery  = 15 * time.Second
	RenewWindow = 45 * time.Second
	RenewFor    = 2 * time.Minute
	renewedFor  = 24 * time.Hour // connections keep an address open
)

// Renew extends the leases of elements that connections still use and that end within the window, so that a pooled
// client which reconnects without asking DNS again is not cut off. It does so for a day after a server has named the
// address for the last time: by then it may be somebody else's.
func (l *Ledger) Renew(used map[firewall.Element]bool, within, ttl time.Duration) []firewall.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	var leases []firewall.Lease
	for _, nl := range l.names {
		l.judge(nl)
		for i := range nl.leases {
			o := &nl.leases[i]
			expires := now + ttl
			if end := o.confirmed + renewedFor; end < expires {
				expires = end
			}
			if passing(used, o.Element) && o.expires < min(now+within, expires) {
				o.expires = expires
				leases = append(leases, l.extend(*o))
			}
		}
	}
	return leases
}

// passing says whether e is in use. The kernel counts what goes to an address as one of those who may.
func passing(used map[firewall.Element]bool, e firewall.Element) bool {
	is := used[e]
	if e.For != firewall.Broker {
		for _, e.For = range []firewall.Holder{firewall.Agent, firewall.Gated} {
			is = is || used[e]
		}
	}
	return is
}

// inUse are the names of which some element is used.
func (l *Ledger) inUse(used map[firewall.Element]bool) (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, nl := range l.names {
		if slices.ContainsFunc(nl.leases, func(o nameLease) bool { return used[o.Element] }) {
			names = append(names, name)
		}
	}
	return names
}

// inspected are the elements that nobody goes out to, of names.
func (l *Ledger) inspected(names []string) (out []firewall.Element) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		if nl := l.names[name]; nl != nil {
			for _, o := range nl.leases {
				if o.For == firewall.Inspected {
					out = append(out, o.Element)
				}
			}
		}
	}
	return out
}

// Use notes that a connection to the element of a name begins, which the kernel does not see, and extends its lease for
// as long as that may go on; no more than a day after a server has named the address. It says whether there is a lease,
// and which one to give in the kernel, if that has to be longer.
func (l *Ledger) Use(name string, e firewall.Element, during time.Duration) (longer firewall.Lease, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	nl := l.at(l.policy.Lookup(name).Name)
	if nl == nil {
		return longer, false
	}
	o, now := nl.find(e), l.now()
	if o == nil || o.For != e.For || o.expires <= now {
		return longer, false
	}
	expires := now + during
	if end := o.confirmed + renewedFor; end < expires {
		expires = end
	}
	if expires-o.expires < during/8 { // not for each of many
		return longer, true
	}
	o.expires = expires
	return l.extend(*o), true
}
