package policy

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"strings"
)

// group is the rules about one name, wildcard or block, in file order: the first about the same ports.
type group []*Rule

// add returns g with r, which comes later in file order.
func (g group) add(r *Rule) group {
	if slices.ContainsFunc(g, func(had *Rule) bool { return slices.Equal(had.Ports, r.Ports) }) {
		return g
	}
	return append(g, r)
}

// match returns the rule about port, or else about every port, or nil. The zero port is every port.
func (g group) match(port Port) (all *Rule) {
	for _, r := range g {
		if slices.Contains(r.Ports, port) {
			return r
		}
		if r.Ports == nil {
			all = r
		}
	}
	return all
}

// index finds rules by name, in as many steps as the name has labels.
type index struct {
	exact, below map[string]group // below: wildcards
}

func (x *index) add(r *Rule) {
	m := &x.exact
	if r.Wildcard {
		m = &x.below
	}
	if *m == nil {
		*m = map[string]group{}
	}
	(*m)[r.Name] = (*m)[r.Name].add(r)
}

// find returns the most specific rule about name and port, or nil.
func (x *index) find(name string, port Port) *Rule {
	for g := range x.groups(name) {
		if r := g.match(port); r != nil {
			return r
		}
	}
	return nil
}

// groups are those about name, the most specific one first.
func (x *index) groups(name string) iter.Seq[group] {
	return func(yield func(group) bool) {
		if g := x.exact[name]; g != nil && !yield(g) {
			return
		}
		for more := len(x.below) > 0; more; _, name, more = strings.Cut(name, ".") {
			if g := x.below[name]; g != nil && !yield(g) {
				return
			}
		}
	}
}

// first returns the most specific rule about name, on whichever port, or nil.
func (x *index) first(name string) *Rule {
	for g := range x.groups(name) {
		return g[0]
	}
	return nil
}

// ports are those that any rule has for name, but for some, each once and in order.
func (x *index) ports(name string, but func(Port) bool) (ports []Port) {
	for g := range x.groups(name) {
		for _, r := range g {
			for _, port := range r.Ports {
				if !but(port) {
					ports = append(ports, port)
				}
			}
		}
	}
	slices.SortFunc(ports, func(a, b Port) int {
		return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Number, b.Number))
	})
	return slices.Compact(ports)
}

// addrIndex finds rules by address, in as many steps as there are different lengths of prefixes.
type addrIndex struct {
	groups map[netip.Prefix]group
	bits   []int // the lengths that occur, longest first
}

func (x *addrIndex) add(p netip.Prefix, r *Rule) {
	if x.groups == nil {
		x.groups = map[netip.Prefix]group{}
	}
	if !slices.Contains(x.bits, p.Bits()) {
		x.bits = append(x.bits, p.Bits())
		slices.SortFunc(x.bits, func(a, b int) int { return b - a })
	}
	x.groups[p] = x.groups[p].add(r)
}

// find returns the rule about port with the longest prefix that holds all of p, which has no zone, or nil.
func (x *addrIndex) find(p netip.Prefix, port Port) *Rule {
	for _, bits := range x.bits {
		if bits > p.Bits() {
			continue
		}
		block, _ := p.Addr().Prefix(bits)
		if r := x.groups[block].match(port); r != nil {
			return r
		}
	}
	return nil
}

// single is the block of one address.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
