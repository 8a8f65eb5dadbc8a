package policy

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"strings"
)

// group is the rules about one name, wildcard or block, in file order: the first about the same ports.
type group struct {
	first *Rule // nil: there is none
	more  []*Rule
}

func (g group) all(yield func(*Rule) bool) {
	if g.first != nil && yield(g.first) {
		for _, r := range g.more {
			if !yield(r) {
				return
			}
		}
	}
}

// match returns the rule about port, or else about every port, or nil. The zero port is every port.
func (g group) match(port Port) (all *Rule) {
	for r := range g.all {
		if slices.Contains(r.Ports, port) {
			return r
		}
		if r.Ports == nil {
			all = r
		}
	}
	return all
}

// groups are those about each of many names or blocks, of which few have more than one rule.
type groups[K comparable] struct {
	first map[K]*Rule
	more  map[K][]*Rule
}

func (m *groups[K]) of(key K) group {
	g := group{first: m.first[key]}
	if len(m.more) > 0 {
		g.more = m.more[key]
	}
	return g
}

// add has r in the group of a key, if none about the same ports comes before it in file order.
func (m *groups[K]) add(key K, r *Rule) {
	for had := range m.of(key).all {
		if slices.Equal(had.Ports, r.Ports) {
			return
		}
	}
	m.keep(key, r)
}

// keep adds r also beside others about the same ports.
func (m *groups[K]) keep(key K, r *Rule) {
	switch {
	case m.first == nil:
		m.first = map[K]*Rule{key: r}
	case m.first[key] == nil:
		m.first[key] = r
	case m.more == nil:
		m.more = map[K][]*Rule{key: {r}}
	default:
		m.more[key] = append(m.more[key], r)
	}
}

// index finds rules by name, in as many steps as the name has labels.
type index struct {
	exact, below groups[string] // below: wildcards
}

// among are the groups that r belongs to.
func (x *index) among(r *Rule) *groups[string] {
	if r.Wildcard {
		return &x.below
	}
	return &x.exact
}

func (x *index) add(r *Rule)  { x.among(r).add(r.Name, r) }
func (x *index) keep(r *Rule) { x.among(r).keep(r.Name, r) }

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
		if g := x.exact.of(name); g.first != nil && !yield(g) {
			return
		}
		for more := len(x.below.first) > 0; more; _, name, more = strings.Cut(name, ".") {
			if g := x.below.of(name); g.first != nil && !yield(g) {
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
		for r := range g.all {
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
	groups groups[netip.Prefix]
	bits   []int // the lengths that occur, longest first
}

func (x *addrIndex) add(p netip.Prefix, r *Rule) {
	if !slices.Contains(x.bits, p.Bits()) {
		x.bits = append(x.bits, p.Bits())
		slices.SortFunc(x.bits, func(a, b int) int { return b - a })
	}
	x.groups.add(p, r)
}

// find returns the rule about port with the longest prefix that holds all of p, which has no zone, or nil.
func (x *addrIndex) find(p netip.Prefix, port Port) *Rule {
	for _, bits := range x.bits {
		if bits > p.Bits() {
			continue
		}
		block, _ := p.Addr().Prefix(bits)
		if r := x.groups.of(block).match(port); r != nil {
			return r
		}
	}
	return nil
}

// single is the block of one address.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
