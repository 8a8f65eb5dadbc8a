package policy

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/pkg/route"
)

// The bounds of what a policy says of requests: each entry may stand with every other one in Settings.Inspected.
const (
	maxInspecting = 1000 // entries
	maxInspected  = 1000 // names on ports, those included that are denied below an inspected wildcard

	// maxCertified are the bytes of the names: they stand in one certificate, of which pkg/broker/authority makes no larger
	// one, with perName for each.
	maxCertified = 48_000
	perName      = 6
)

// spot is a name, or a wildcard, on a port: what one of Settings.Inspected is about.
type spot struct {
	name     string
	wildcard bool
	port     uint16
}

// covering are the rules of x that are about all of what r is about, on whichever port.
func (x *index) covering(r *Rule) iter.Seq[*Rule] {
	if r.Wildcard {
		x = &index{below: x.below}
	}
	return func(yield func(*Rule) bool) {
		for g := range x.groups(r.Name) {
			for _, by := range g {
				if !yield(by) {
					return
				}
			}
		}
	}
}

// has says whether the rule is about a port; one to deny without any is about all.
func (r *Rule) has(port Port) bool { return r.Ports == nil || slices.Contains(r.Ports, port) }

// inspect works out which names the broker looks into, and leaves out the entries that count only without it.
func (p *Policy) inspect(ps *parser) {
	var asked, denied index
	order := map[*Rule]int{}
	for _, r := range p.rules {
		if r.Inspects() {
			asked.keep(r)
			order[r] = len(order)
		}
	}
	if len(order) > maxInspecting {
		ps.errs.add(Error{Message: fmt.Sprintf("a policy has %d entries about requests at most", maxInspecting)})
		return
	}
	gone := p.yielding(&asked)
	p.rules = slices.DeleteFunc(p.rules, func(r *Rule) bool { return gone[r] })
	for _, r := range p.rules {
		if len(order) > 0 && r.Deny && r.Name != "" && !r.Inspects() {
			denied.keep(r)
		}
	}
	seen := map[spot]bool{}
	for _, r := range p.rules {
		if r.Name == "" || len(order) == 0 || !r.Deny && !r.Inspects() {
			continue
		}
		about := []*Rule{r}
		if r.Deny && !r.Inspects() && !r.Wildcard {
			for full := range p.Resolv.below(r.Name) {
				about = append(about, &Rule{Name: full, Ports: r.Ports})
			}
		}
		for _, form := range about {
			for by := range asked.covering(form) {
				for _, port := range by.Ports { // one to deny only takes out of what others allow
					if at := (spot{form.Name, form.Wildcard, port.Number}); !by.Deny && form.has(port) && !seen[at] {
						seen[at] = true
						p.Settings.Inspected = append(p.Settings.Inspected, p.joined(at, &asked, &denied, order))
					}
				}
			}
		}
	}
	if len(p.Settings.Inspected) > maxInspected {
		ps.errs.add(Error{Message: fmt.Sprintf("a policy has %d inspected names at most, those included that are denied below a wildcard", maxInspected)})
	}
	size, counted := 0, map[string]bool{}
	for _, i := range p.Settings.Inspected {
		if !i.Plain && !counted[i.Name] {
			counted[i.Name] = true
			size += len(i.Name) + perName
		}
	}
	if size > maxCertified {
		ps.errs.add(Error{Message: fmt.Sprintf("the inspected names of a policy fit into one certificate of %d bytes, and these take %d: write a wildcard for some", maxCertified, size)})
	}
	p.put(ps)
}

// joined is what all entries say of one name, or wildcard, on a port. What is denied whole is denied here, too: nobody
// but the broker sees the requests of connections that it has already.
func (p *Policy) joined(at spot, asked, denied *index, order map[*Rule]int) route.Inspected {
	i := route.Inspected{Name: at.name, Wildcard: at.wildcard, Port: at.port, Plain: at.port == HTTP.Number}
	self := &Rule{Name: at.name, Wildcard: at.wildcard}
	for form := range p.Resolv.forms(self) {
		for r := range denied.covering(form) {
			if r.has(Port{TCP, at.port}) && i.Deny == nil {
				i.Deny = []route.Request{{Rule: r.Source.String()}}
			}
		}
	}
	var rules []*Rule
	closest := "" // the name or wildcard that the closest entries are for
	for r := range asked.covering(self) {
		if !r.has(Port{TCP, at.port}) {
			continue
		}
		rules = append(rules, r)
		if closest == "" && !r.Deny {
			closest = r.Target()
		}
		// To look on below a wildcard does not open what has entries of its own there.
		i.Observe = i.Observe || r.Observe && r.Target() == closest
	}
	slices.SortFunc(rules, func(a, b *Rule) int { return cmp.Compare(order[a], order[b]) })
	for _, r := range rules {
		switch {
		case r.Deny:
			i.Deny = append(i.Deny, *r.Request)
		case r.Request != nil:
			i.Allow = append(i.Allow, *r.Request)
		}
		i.Plain = i.Plain || r.HTTP
		i.Private = i.Private || r.Private
	}
	i.Within = p.ceiling.requests(self, Port{TCP, at.port})
	i.Observe = i.Observe && i.Within == nil
	return i
}

// yielding are the entries that count only where the broker does not go, beside entries about requests there.
func (p *Policy) yielding(asked *index) map[*Rule]bool {
	var unbrokered index
	gone := map[*Rule]bool{}
	for _, r := range p.rules {
		if !r.Unbrokered || r.Inspects() || r.Name == "" {
			continue
		}
		unbrokered.keep(r)
		for by := range asked.covering(r) {
			gone[r] = gone[r] || !by.Deny && shared(r, by) != Port{}
		}
	}
	for _, by := range p.rules {
		if by.Inspects() && !by.Deny {
			for r := range unbrokered.covering(by) {
				gone[r] = gone[r] || shared(r, by) != Port{}
			}
		}
	}
	return gone
}

// shared returns a port that a plain entry and one about requests are both about, also by the other protocol: QUIC is
// HTTP as well. The zero port is none.
func shared(plain, by *Rule) Port {
	for _, port := range plain.Ports {
		if by.has(Port{TCP, port.Number}) {
			return port
		}
	}
	return Port{}
}

// put finds the inspected names onto whose requests routes put credentials.
func (p *Policy) put(ps *parser) {
	owner := map[string]string{}
	for i := range p.routes {
		w := &p.routes[i]
		if w.Inspects == "" {
			continue
		}
		name, port := cutLast(w.Inspects)
		number, _ := strconv.ParseUint(port, 10, 16)
		on := route.FindInspected(p.Settings.Inspected, name, uint16(number))
		wrong := func(message string) {
			ps.errs.add(Error{Source: w.place("inspect"), Text: w.Inspects, Message: message})
		}
		switch {
		case on == nil:
			wrong("no entry says which requests may be asked there: write one, as in " + name + " * /**")
			continue
		case owner[w.Inspects] != "":
			wrong("the route " + owner[w.Inspects] + " puts a credential onto this name already: take one of them out")
		case on.Plain && !w.Keyless && !w.Plaintext:
			wrong("the credential would go over the network in the clear: inspect a port with TLS, or write plaintext: true")
		}
		owner[w.Inspects] = w.Name
		w.To = "https://" + strings.TrimSuffix(w.Inspects, ":443") + "/"
		if on.Plain {
			w.To = "http://" + strings.TrimSuffix(w.Inspects, ":80") + "/"
		}
	}
}

// unmixed finds names that the agent would reach without a look at requests as well as with one, and ports of which
// entries say different things.
func (p *Policy) unmixed(ps *parser) {
	for _, r := range p.rules {
		p.contradicted(ps, r)
	}
	if !slices.ContainsFunc(p.rules, (*Rule).Inspects) { // most lists are long, and have none
		return
	}
	var asked, plain index
	beside := map[string]bool{}
	for _, r := range p.rules {
		if r.Inspects() {
			asked.keep(r)
			for _, form := range p.besideForms(r) {
				beside[form.Name] = true
			}
		}
	}
	for _, r := range p.rules {
		if !r.Inspects() && !r.Deny && r.Name != "" && (r.Wildcard || beside[r.Name]) {
			plain.add(r)
		}
	}
	for _, r := range p.rules {
		switch {
		case r.Inspects():
			for _, form := range p.besideForms(r) {
				for with := range plain.covering(form) {
					p.mixed(ps, r, with)
				}
			}
		case !r.Deny && r.Name != "":
			for by := range asked.covering(r) {
				if by.Target() != r.Target() { // those have been compared
					p.mixed(ps, by, r)
				}
			}
		}
	}
}

// mixed reports that an entry about requests stands beside a plain one.
func (p *Policy) mixed(ps *parser, r, plain *Rule) {
	port := shared(plain, r)
	narrow := r // of the two, the one about fewer names
	if r.Wildcard {
		narrow = plain
	}
	if port == (Port{}) || !narrow.Wildcard && p.deny.find(narrow.Name, port) != nil {
		return
	}
	remedy := "take one of the two out"
	switch {
	case r.Deny:
		remedy = "write " + plain.Target() + " * /** in its place, to have its requests looked at"
	case plain.Preset != "":
		remedy = "name what you need of the preset in its place"
	case plain.Wildcard && plain.Target() != r.Target():
		remedy = "name what else you need below the wildcard in its place"
	}
	ps.errs.add(Error{Source: r.Source, Text: r.Text, Message: fmt.Sprintf("%s allows %v on %v without a look at its requests: %s", plain.cited(), plain.Target(), port, remedy)})
}

// contradicted reports that another entry says something else of what a port carries.
func (p *Policy) contradicted(ps *parser, r *Rule) {
	if r.Deny {
		return
	}
	compare := func(is bool, other func(by *Rule) bool, word string) {
		if !is {
			return
		}
		for by := range p.allow.covering(r) {
			if by != r && other(by) && slices.ContainsFunc(r.Ports, by.has) {
				ps.errs.add(Error{Source: r.Source, Text: r.Text, Message: fmt.Sprintf("%s says %s of the same port: take one of the words out", by.cited(), word)})
				return
			}
		}
	}
	compare(r.TLS || r.Direct, func(by *Rule) bool { return by.HTTP }, "http")
	compare(r.HTTP || r.Direct, func(by *Rule) bool { return by.TLS }, "tls")
}

// cited says where a rule is written, and by which preset.
func (r *Rule) cited() string {
	if r.Preset != "" {
		return "@" + r.Preset + " (" + r.Source.String() + ")"
	}
	return r.Source.String()
}
