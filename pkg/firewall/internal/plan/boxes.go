package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Box is one element of a set: a range of addresses, of protocols and of
// ports. The kernel refuses elements that overlap, so a set's boxes never do.
type Box struct {
	Prefix netip.Prefix
	Proto  uint8  // 0 stands for every protocol
	Port   uint16 // 0 stands for every port
}

func (b Box) String() string {
	proto, port := "any", "any"
	if b.Proto != 0 {
		proto = protoName(b.Proto)
	}
	if b.Port != 0 {
		port = fmt.Sprint(b.Port)
	}
	return fmt.Sprintf("%s . %s . %s", b.Prefix, proto, port)
}

// ofFamily returns those of boxes whose addresses are of a family.
func ofFamily(boxes []Box, f Family) (out []Box) {
	for _, b := range boxes {
		if FamilyOf(b.Prefix.Addr()) == f {
			out = append(out, b)
		}
	}
	return out
}

// disjoint returns boxes that cover what boxes cover, in canonical order, no two of them overlapping.
func disjoint(boxes []Box) []Box {
	by := map[Box][]netip.Prefix{} // by protocol and port
	for _, b := range boxes {
		s := Box{Proto: b.Proto, Port: b.Port}
		by[s] = append(by[s], b.Prefix)
	}
	var out []Box
	// What a protocol covers without a port, or all of them, is taken out of the others, of
	// which it is the only possible overlap. It comes first.
	for _, s := range slices.SortedFunc(maps.Keys(by), compareBoxes) {
		ps := outermost(by[s])
		for _, wider := range []Box{{}, {Proto: s.Proto}} {
			if wider == s {
				continue
			}
			var rest []netip.Prefix
			for _, p := range ps {
				rest = append(rest, without(p, by[wider])...)
			}
			ps = rest
		}
		by[s] = ps
		for _, p := range ps {
			out = append(out, Box{p, s.Proto, s.Port})
		}
	}
	slices.SortFunc(out, compareBoxes)
	return out
}

func compareBoxes(a, b Box) int {
	return cmp.Or(comparePrefixes(a.Prefix, b.Prefix), cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// outermost returns ps, sorted, without those that lie in another.
func outermost(ps []netip.Prefix) []netip.Prefix {
	var last netip.Prefix
	return slices.DeleteFunc(slices.SortedFunc(slices.Values(ps), comparePrefixes), func(p netip.Prefix) bool {
		if last.Contains(p.Addr()) {
			return true
		}
		last = p
		return false
	})
}

// without returns what of p doesn't lie in holes. Those are sorted and free of overlaps, and so is the result.
func without(p netip.Prefix, holes []netip.Prefix) []netip.Prefix {
	i, meets := slices.BinarySearchFunc(holes, p, func(h, p netip.Prefix) int {
		if h.Overlaps(p) {
			return 0
		}
		return comparePrefixes(h, p)
	})
	switch {
	case !meets:
		return []netip.Prefix{p}
	case holes[i].Bits() <= p.Bits():
		return nil
	}
	low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	high := netip.PrefixFrom(Box{Prefix: low}.Last().Next(), low.Bits())
	return append(without(low, holes[i:]), without(high, holes[i:])...)
}

// Last returns the highest address of b.
func (b Box) Last() netip.Addr {
	a := b.Prefix.Addr().AsSlice()
	for i := range a {
		if n := b.Prefix.Bits() - 8*i; n < 8 {
			a[i] |= 0xff >> max(n, 0)
		}
	}
	last, _ := netip.AddrFromSlice(a)
	return last
}
