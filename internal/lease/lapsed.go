package lease

import (
	"slices"

	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

// lapsed are elements whose leases are over, and the names that had them. What had
// answered by then may go on, so whoever ends a name has to know them too. An element
// that is in no book at all is cut off with the next change of the policy.
type lapsed map[firewall.Element][]string

// The bounds of what is remembered. What finds no room lives until the next change.
const (
	maxLapsed      = maxLeases
	maxLapsedNames = 16 // for an element
)

func (s lapsed) add(e firewall.Element, name string) {
	names, there := s[e]
	if !there && len(s) >= maxLapsed || len(names) >= maxLapsedNames || slices.Contains(names, name) {
		return
	}
	s[e] = append(names, name)
}

// adopt forgets the names that p does not allow there, and returns what is left without
// any.
func (s lapsed) adopt(p *policy.Policy) (closed []firewall.Element) {
	for e, names := range s {
		names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(p.Admit(name, e.Addr), portOf(e)) })
		s[e] = names
		if len(names) == 0 {
			delete(s, e)
			closed = append(closed, e)
		}
	}
	return closed
}

// Knows says whether some name has the element open, or had it and may keep what is
// under way there.
func (l *Ledger) Knows(e firewall.Element) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.elements[e].names > 0 || len(l.lapsed[e]) > 0
}

// ForgetLapsed forgets those that nothing is under way to.
func (l *Ledger) ForgetLapsed(used map[firewall.Element]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := range l.lapsed {
		if !used[e] {
			delete(l.lapsed, e)
		}
	}
}
