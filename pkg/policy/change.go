package policy

import (
	"slices"
	"strings"
)

// Change is what the rules are about in which two policies differ. A few more may be among it: rules are compared from both
// ends of the file order. It tells nothing of the settings.
type Change struct {
	Names     []string // exact ones
	Wildcards []string
}

// Since returns how the rules of p differ from those of old.
func (p *Policy) Since(old *Policy) (c Change) {
	a, b := old.rules, p.rules
	for len(a) > 0 && len(b) > 0 && a[0].opensAs(b[0]) {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1].opensAs(b[len(b)-1]) {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	for _, r := range slices.Concat(a, b) {
		switch {
		case r.Name == "":
		case r.Wildcard:
			c.Wildcards = append(c.Wildcards, r.Name)
		default:
			c.Names = slices.AppendSeq(slices.AppendSeq(append(c.Names, r.Name), p.Resolv.below(r.Name)), p.Resolv.Above(r.Name))
		}
	}
	return c
}

// And is what either is about.
func (c Change) And(o Change) Change {
	return Change{slices.Concat(c.Names, o.Names), slices.Concat(c.Wildcards, o.Wildcards)}
}

// Covers says whether a wildcard that has changed stands for name.
func (c Change) Covers(name string) bool {
	return slices.ContainsFunc(c.Wildcards, func(w string) bool {
		above, is := strings.CutSuffix(name, w)
		return is && (above == "" || strings.HasSuffix(above, "."))
	})
}

// opensAs says whether r opens or denies the same addresses as o. Which requests they are about makes no difference to that.
func (r *Rule) opensAs(o *Rule) bool {
	return r.Name == o.Name && r.Prefix == o.Prefix && r.Deny == o.Deny && r.Wildcard == o.Wildcard && r.Flags == o.Flags && slices.Equal(r.Ports, o.Ports)
}
