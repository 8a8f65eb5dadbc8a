package policy

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"strings"
)

// groups are the rules about each of many names, wildcards or blocks, in file order.
type groups[K comparable] map[K][]*Rule

// match returns the rule of a group about port, or else about every port, or nil. The zero port is every port.
func match(group []*Rule, port Port) (all *Rule) {
	for _, r := range group {
		if slices.Contains(r.Ports, port) {
			return r
		}
		if r.Ports == nil {
			all = r
		}
	}
	return all
}

// add has r in the group of a key, if none about the same ports comes before it in file order.
func (m *groups[K]) add(key K, r *Rule) {
	if !slices.ContainsFunc((*m)[key], func(had *Rule) bool { return slices.Equal(had.Ports, r.Ports) }) {
		m.keep(key, r)
	}
}

// keep adds r also beside others about the same ports.
func (m *groups[K]) keep(key K, r *Rule) {
	if *m == nil {
		*m = groups[K]{}
	}
	(*m)[key] = append((*m)[key], r)
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
		if r := match(g, port); r != nil {
			return r
		}
	}
	return nil
}

// which returns the most specific rule about name that is so, or nil.
func (x *index) which(name string, is func(*Rule) bool) *Rule {
	for g := range x.groups(name) {
		if at := slices.IndexFunc(g, is); at >= 0 {
			return g[at]
		}
	}
	return nil
}

// groups are those about name, the most specific one first.
func (x *index) groups(name string) iter.Seq[[]*Rule] {
	return func(yield func([]*Rule) bool) {
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
		if r := match(x.groups[block], port); r != nil {
			return r
		}
	}
	return nil
}

// single is the block of one address.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
