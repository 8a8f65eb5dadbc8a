package policy

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// Resolv is what resolv.conf(5) says to who asks in the place of programs.
type Resolv struct {
	Servers    []netip.AddrPort `json:"servers,omitempty"`
	Search     []string         `json:"search,omitempty"`      // domains, in lower case, without dots at their ends
	Ndots      int              `json:"ndots,omitempty"`       // names with fewer dots are tried below them first
	PassedOver []string         `json:"passed_over,omitempty"` // servers that are not asked, and why
	Fault      string           `json:"fault,omitempty"`       // why nothing of the file counts
}

// Equal says whether two say the same.
func (r Resolv) Equal(s Resolv) bool {
	return slices.Equal(r.Servers, s.Servers) && slices.Equal(r.Search, s.Search) && r.Ndots == s.Ndots && slices.Equal(r.PassedOver, s.PassedOver) && r.Fault == s.Fault
}

// A program that says db asks for db.ns.svc.cluster.local, then db.svc.cluster.local and so on, and for db in the end
// (resolv.conf(5): search, ndots). It goes on saying db to the server that it has found. So these are forms of one name:
//
//   - An entry db means what programs reach by that name: the guard looks for it in their order (Asked), and answers the
//     question for db. The other forms don't exist for the agent, which could choose another server among them.
//   - An entry db.ns.svc.cluster.local may be called db: what asks about a name that no entry has asks about the form of it
//     that one has (canonical).
//   - What denies one form denies the others (denying).

// below are the full forms of name, in the order in which programs ask for them.
func (r Resolv) below(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, domain := range r.Search {
			if full := name + "." + domain; len(full) <= maxName && !yield(full) {
				return
			}
		}
	}
}

// Above are the names that programs may have asked for where they ask for a full form.
func (r Resolv) Above(full string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, domain := range r.Search {
			if name, is := strings.CutSuffix(full, "."+domain); is && name != "" && !yield(name) {
				return
			}
		}
	}
}

// forms are what r is about, and the names by which programs may mean that.
func (v Resolv) forms(r *Rule) iter.Seq[*Rule] {
	return func(yield func(*Rule) bool) {
		if !yield(r) || r.Wildcard {
			return
		}
		for name := range v.Above(r.Name) {
			if !yield(&Rule{Name: name}) {
				return
			}
		}
	}
}

// besideForms are r, and the forms of its name by which programs come to the same server.
func (p *Policy) besideForms(r *Rule) []*Rule {
	forms := []*Rule{r}
	if r.Wildcard {
		return forms
	}
	for name := range p.Resolv.Above(r.Name) {
		if slices.Contains(p.Asked(name), r.Name) {
			forms = append(forms, &Rule{Name: name})
		}
	}
	for _, full := range p.Asked(r.Name) {
		if full != r.Name {
			forms = append(forms, &Rule{Name: full})
		}
	}
	return forms
}

// ofNetwork says whether no public server answers for a name: its last label is no top-level domain.
func ofNetwork(name string) bool {
	suffix, icann := publicsuffix.PublicSuffix(name)
	return !icann && !strings.Contains(suffix, ".")
}

// Asked are the names that servers are asked for in the place of name, which an entry has: the first that exists is meant.
// Those of the Internet are meant as they are written, whatever somebody has below a search domain. So are those with as
// many dots as ndots, which glibc tries below the search domains as well, and musl does not. A full form that is denied
// denies a name of one label. Others may have an address elsewhere: of them it is passed over.
func (p *Policy) Asked(name string) []string {
	if strings.Count(name, ".") >= p.Resolv.Ndots || !ofNetwork(name) {
		return []string{name}
	}
	for range p.Resolv.Above(name) { // it is a full form itself
		return []string{name}
	}
	by := p
	if r := p.allow.first(name); p.bound != nil && r != nil && !r.routes {
		by = p.bound
	}
	var names []string
	single := !strings.Contains(name, ".")
	for full := range p.Resolv.below(name) {
		if single || by.deniedAs(full, func(form string) *Rule { return by.deny.find(form, Port{}) }) == nil {
			names = append(names, full)
		}
	}
	return append(names, name)
}

// Meant are the names with entries of their own that stand for a full form.
func (p *Policy) Meant(full string) (names []string) {
	for name := range p.Resolv.Above(full) {
		if p.allow.exact[name] != nil && p.lookup(name).Allowed && slices.Contains(p.Asked(name), full) {
			names = append(names, name)
		}
	}
	return names
}

// canonical returns a name as it is compared: in the form that an entry has, if there is one. To a wildcard below which there
// are search domains, names of the Internet are none of its own.
func (p *Policy) canonical(said string) (name, problem string) {
	name, problem = canonical(said)
	if len(p.Resolv.Search) == 0 || problem != "" || p.allow.first(name) != nil || p.deniedAs(name, p.deny.first) != nil || p.hosts[name] != nil {
		return name, problem
	}
	below := ""
	for full := range p.Resolv.below(name) {
		switch r := p.allow.first(full); {
		case r == nil, !p.lookup(full).Allowed:
		case !r.Wildcard:
			return full, ""
		case below == "" && ofNetwork(name):
			below = full
		}
	}
	for range p.Resolv.Above(name) { // it is a full form itself
		return name, ""
	}
	if below != "" {
		return below, ""
	}
	return name, ""
}

// denying returns a rule that denies a canonical name on port, in whichever form, or nil.
func (p *Policy) denying(name string, port Port) *Rule {
	return p.denied(name, func(form string) *Rule { return p.deny.find(form, port) })
}

// deniesSome returns a rule that denies a canonical name on some port, or on all, in whichever form, or nil.
func (p *Policy) deniesSome(name string) *Rule { return p.denied(name, p.deny.first) }

func (p *Policy) denied(name string, by func(form string) *Rule) *Rule {
	r := p.deniedAs(name, by)
	if r != nil || len(p.Resolv.Search) == 0 || len(p.deny.exact)+len(p.deny.below) == 0 {
		return r
	}
	for _, full := range p.Asked(name) {
		if r == nil && full != name {
			r = p.deniedAs(full, by)
		}
	}
	return r
}

// deniedAs is for one form, and those that are shorter.
func (p *Policy) deniedAs(form string, by func(form string) *Rule) *Rule {
	r := by(form)
	for name := range p.Resolv.Above(form) {
		if r == nil {
			r = by(name)
		}
	}
	return r
}

// Unresolvable returns an allowed name that only a DNS server could resolve, nil if there is none: of the agent's or of
// the broker's.
func (p *Policy) Unresolvable() *Rule {
	for _, q := range []*Policy{p, p.Broker} {
		if q == nil {
			continue
		}
		for _, r := range q.rules {
			_, stands := q.StandIn(r.Name)
			if r.Name != "" && !r.Deny && !stands && (r.Wildcard || len(q.hosts[r.Name]) == 0 && q.lookup(r.Name).Allowed) {
				return r
			}
		}
	}
	return nil
}
