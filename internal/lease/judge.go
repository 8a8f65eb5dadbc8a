package lease

import (
	"slices"
	"time"

	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

// A new policy is in force at once, and what it closes has to end soon, however many leases the agent has made. So the book
// is judged in steps: Begin judges the names that the policy has been changed about, and whoever asks about another name
// later has it judged first. Sift judges all others, some at a time.

// judging is how far the policy has got through the book.
type judging struct {
	policies uint32                             // counts them: what bears an older number is not judged
	first    policy.Change                      // what it covers comes first
	out      map[firewall.Element]time.Duration // struck out, and until when the kernel was told to keep it; Sift has still to return them
	moved    []firewall.Element                 // for whom somebody else goes out from now on, likewise
}

// atOnce is how many elements Begin returns at most, and how many names Sift judges at a time.
const atOnce = 1000

// Begin changes the policy; without one, nothing is admitted. It returns what that closes of the names that its rules, or
// others, have been changed about, if that is not too much. For all else there is Sift.
func (l *Ledger) Begin(p *policy.Policy, others policy.Change) (closed []firewall.Element) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p == nil {
		p = new(policy.Policy)
	}
	change := p.Since(l.policy).And(others)
	l.policy = p
	l.edition.Add(1) // a name may stand for another now
	limits := p.Settings.Limits
	l.perName, l.total = limits.AddrsPerName, min(limits.Leases, maxLeases)
	l.judging.policies++
	l.judging.first = l.judging.first.And(policy.Change{Wildcards: change.Wildcards})
	for _, name := range change.Names {
		if l.at(name); len(l.judging.out) >= atOnce {
			break
		}
	}
	return l.closed()
}

// Sift judges some more of the book. It returns what is not admitted any more, what somebody else goes out for, to be given
// in the kernel, and whether there is more to judge.
func (l *Ledger) Sift() (closed []firewall.Element, moved []firewall.Lease, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j, left := &l.judging, atOnce
	names := func(of func(name string) bool) {
		for name, nl := range l.names {
			if left == 0 {
				return
			}
			if nl.judged != j.policies && of(name) {
				l.judge(nl)
				left--
			}
		}
	}
	if len(j.first.Wildcards) > 0 {
		names(j.first.Covers)
	}
	left = l.judgeLapsed(left)
	names(func(string) bool { return true })
	if left > 0 {
		j.first = policy.Change{}
	}
	now := l.now()
	for _, s := range j.moved {
		if h := l.elements[s]; h.names > 0 {
			moved = append(moved, firewall.Lease{Element: s, TTL: h.expires - now})
		}
	}
	j.moved = nil
	return l.closed(), moved, left == 0
}

func (l *Ledger) inForce() *policy.Policy {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.policy
}

// closed are the elements that were struck out, and have not been taken by somebody since.
func (l *Ledger) closed() (out []firewall.Element) {
	for s := range l.judging.out {
		if l.elements[s].names == 0 {
			out = append(out, s)
		}
	}
	l.judging.out = nil
	return out
}

// at returns the leases of a name, as the policy in force has them; nil if there are none.
func (l *Ledger) at(name string) *nameLeases {
	if nl := l.names[name]; nl != nil {
		l.judge(nl)
	}
	return l.names[name]
}

// judge strikes out what the policy doesn't admit of a name's leases. What it admits still, it keeps, with the ports of the
// new policy.
func (l *Ledger) judge(nl *nameLeases) {
	if nl.judged == l.judging.policies {
		return
	}
	nl.judged = l.judging.policies
	var others []nameLease
	allowed := l.policy.Lookup(nl.name).Allowed
	free := l.strike(nl, false, func(o nameLease) bool {
		e := o.Element
		if !allowed || !l.admits(nl.name, e) {
			return true
		}
		s := l.same(nl.name, e)
		if s != o.Element {
			others = append(others, nameLease{s, o.expires, o.since, o.confirmed})
		}
		return s != o.Element
	})
	for _, o := range others {
		l.names[nl.name] = nl
		l.book(nl, o)
		h := l.elements[o.Element] // which the kernel is told of later, and may hold from before
		h.expires = max(h.expires, l.judging.out[o.Element])
		l.elements[o.Element] = h
		l.judging.moved = append(l.judging.moved, o.Element)
	}
	for _, f := range free {
		l.strikeOut(f)
	}
}

func (l *Ledger) strikeOut(f freed) {
	if l.judging.out == nil {
		l.judging.out = map[firewall.Element]time.Duration{}
	}
	l.judging.out[f.Element] = max(f.until, l.judging.out[f.Element])
}

func (l *Ledger) admits(name string, e firewall.Element) bool {
	return slices.Contains(l.policy.Admit(name, e.Addr), portOf(e))
}

// judgeLapsed has no more than that many lapsed elements forget the names that are not to stay there, and returns how many
// more it might have judged.
func (l *Ledger) judgeLapsed(most int) (left int) {
	for e, o := range l.lapsed {
		if most == 0 {
			break
		}
		if o.judged == l.judging.policies {
			continue
		}
		most--
		o.judged = l.judging.policies
		o.names = slices.DeleteFunc(o.names, func(name string) bool { return !l.admits(name, e) || l.same(name, e) != e })
		if l.lapsed[e] = o; len(o.names) == 0 {
			delete(l.lapsed, e)
			l.strikeOut(freed{Element: e}) // its lease is over
		}
	}
	return most
}
