package policy

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// group is the rules about one name, wildcard or block. The usual one rule
// costs no more than a pointer to it.
type group struct {
	first *Rule          // in file order; nil if the group is empty
	ports map[Port]*Rule // the first rule about each port; nil while first says it all
}

// add returns g with r, which comes later in file order.
func (g group) add(r *Rule) group {
	if g.first == nil {
		return group{first: r}
	}
	if g.ports == nil {
		if slices.Equal(g.first.Ports, r.Ports) {
			return g
		}
		g.ports = map[Port]*Rule{}
		g.put(g.first)
	}
	g.put(r)
	return g
}

func (g group) put(r *Rule) {
	for _, port := range everyPort(r.Ports) {
		if g.ports[port] == nil {
			g.ports[port] = r
		}
	}
}

// everyPort returns ports, or the zero Port that stands for all of them.
func everyPort(ports []Port) []Port {
	if ports == nil {
		return []Port{{}}
	}
	return ports
}

// match returns the rule about port, or nil. The zero port is matched only by a
// rule about every port.
func (g group) match(port Port) *Rule {
	switch {
	case g.first == nil:
		return nil
	case g.ports != nil:
		if r := g.ports[port]; r != nil {
			return r
		}
		return g.ports[Port{}]
	case g.first.Ports == nil || slices.Contains(g.first.Ports, port):
		return g.first
	}
	return nil
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
		if g := x.exact[name]; g.first != nil && !yield(g) {
			return
		}
		for more := len(x.below) > 0; more; _, name, more = strings.Cut(name, ".") {
			if g := x.below[name]; g.first != nil && !yield(g) {
				return
			}
		}
	}
}

// first returns the most specific rule about name, on whichever port, or nil.
func (x *index) first(name string) *Rule {
	for g := range x.groups(name) {
		return g.first
	}
	return nil
}

// ports are those that any rule has for name, but for some, each once and in order.
func (x *index) ports(name string, but func(Port) bool) (ports []Port) {
	for g := range x.groups(name) {
		all := maps.Keys(g.ports)
		if g.ports == nil {
			all = slices.Values(g.first.Ports)
		}
		for port := range all {
			if !but(port) {
				ports = append(ports, port)
			}
		}
	}
	slices.SortFunc(ports, func(a, b Port) int {
		return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Number, b.Number))
	})
	return slices.Compact(ports)
}

// addrIndex finds rules by address, in as many steps as there are different
// lengths of prefixes.
type addrIndex struct {
	groups map[netip.Prefix]group
	bits   [2][]int // the lengths that occur, longest first, for IPv4 and IPv6
}

func (x *addrIndex) add(p netip.Prefix, r *Rule) {
	if x.groups == nil {
		x.groups = map[netip.Prefix]group{}
	}
	bits := &x.bits[family(p.Addr())]
	if !slices.Contains(*bits, p.Bits()) {
		*bits = append(*bits, p.Bits())
		slices.SortFunc(*bits, func(a, b int) int { return b - a })
	}
	x.groups[p] = x.groups[p].add(r)
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// find returns the rule with the longest prefix about a and port, or nil.
func (x *addrIndex) find(a netip.Addr, port Port) *Rule {
	return x.findPrefix(netip.PrefixFrom(a, a.BitLen()), port)
}

// findPrefix returns the rule with the longest prefix that holds all of p, or nil.
func (x *addrIndex) findPrefix(p netip.Prefix, port Port) *Rule {
	for _, bits := range x.bits[family(p.Addr())] {
		if bits > p.Bits() {
			continue
		}
		block, err := p.Addr().Prefix(bits)
		if err != nil {
			continue // an address with a zone, which no rule has
		}
		if r := x.groups[block].match(port); r != nil {
			return r
		}
	}
	return nil
}
