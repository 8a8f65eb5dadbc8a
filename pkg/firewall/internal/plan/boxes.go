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

// disjoint returns the boxes of one family that cover what boxes cover, in
// canonical order, no two of them overlapping.
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
			if wider != s {
				ps = without(ps, by[wider])
			}
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
	ps = slices.Clone(ps)
	slices.SortFunc(ps, comparePrefixes)
	out := ps[:0]
	for _, p := range ps {
		if len(out) > 0 && out[len(out)-1].Contains(p.Addr()) {
			continue
		}
		out = append(out, p)
	}
	return out
}

// without returns what of ps doesn't lie in holes. Both are sorted and free of
// overlaps, and so is the result.
func without(ps, holes []netip.Prefix) []netip.Prefix {
	if len(holes) == 0 {
		return ps
	}
	var out []netip.Prefix
	for _, p := range ps {
		// The first hole that doesn't begin before p; the one before it may
		// still contain p.
		i, _ := slices.BinarySearchFunc(holes, p.Addr(), func(h netip.Prefix, a netip.Addr) int { return h.Addr().Compare(a) })
		if i > 0 && holes[i-1].Contains(p.Addr()) || i < len(holes) && holes[i].Bits() <= p.Bits() && holes[i].Contains(p.Addr()) {
			continue
		}
		j := i
		for j < len(holes) && p.Contains(holes[j].Addr()) {
			j++
		}
		out = append(out, punch(p, holes[i:j])...)
	}
	return out
}

// punch returns p without holes, all of which lie in it.
func punch(p netip.Prefix, holes []netip.Prefix) []netip.Prefix {
	if len(holes) == 0 {
		return []netip.Prefix{p}
	}
	if holes[0] == p {
		return nil
	}
	low, high := halves(p)
	n := 0
	for n < len(holes) && low.Contains(holes[n].Addr()) {
		n++
	}
	return append(punch(low, holes[:n]), punch(high, holes[n:])...)
}

// halves splits p, which holds more than one address.
func halves(p netip.Prefix) (low, high netip.Prefix) {
	bits := p.Bits() + 1
	b := p.Addr().AsSlice()
	b[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	upper, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(p.Addr(), bits), netip.PrefixFrom(upper, bits)
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
