package firewall

import (
	"fmt"
	"slices"
	"strings"
)

// ipsetPart is one of the ipsets that together are a set of a plan. An ipset has
// one kind of entry, and none that leaves out the port alone: so a set is split
// by that, and where the protocol is said but no port, a rule asks for it.
type ipsetPart struct {
	ipset
	proto uint8 // for rules to ask for; 0: none
	boxes []box // of static sets, as the kernel takes them
	of    set   // those too
}

// partName returns the name of a part of a set of a plan: "agent-init-",
// the set's name, and what tells it from other parts. The hash that ends the
// names of static sets is cut to what an ipset's name has room for.
func partName(set, part string) string {
	if i := strings.LastIndexByte(set, '-'); i >= 0 && len(set) > i+10 {
		set = set[:i+10]
	}
	return xtPrefix + set + part
}

// ipsets returns the parts of s, in order of their names; none for sets that
// iptables has other means for.
func (s set) ipsets() []ipsetPart {
	switch s.kind {
	case leased:
		// The kernel looks for what has expired once a set is about full, part of
		// it at a time: so it gets room, and the limit is ours to keep.
		return []ipsetPart{{ipset: ipset{partName(s.name, ""), hashIPPort, s.family, true, 2 * maxLeases}}}
	case living:
		return []ipsetPart{{ipset: ipset{partName(s.name, ""), hashIPPort, s.family, true, maxLive}}}
	case static:
		return s.staticParts()
	}
	return nil
}

func (s set) staticParts() []ipsetPart {
	parts := map[string]*ipsetPart{}
	for _, b := range s.boxes {
		key, typ, proto := "-p", hashNetPort, uint8(0)
		switch {
		case b.port == 0 && b.proto == 0:
			key, typ = "-n", hashNet
		case b.port == 0:
			key, typ, proto = fmt.Sprintf("-%d", b.proto), hashNet, b.proto
			b.proto = 0
		}
		if parts[key] == nil {
			parts[key] = &ipsetPart{ipset: ipset{name: partName(s.name, key), typ: typ, family: s.family, timed: !s.until.IsZero()}, proto: proto, of: s}
		}
		p := parts[key]
		if b.prefix.Bits() == 0 { // which an ipset can't hold
			low, high := halves(b.prefix)
			p.boxes = append(p.boxes, box{low, b.proto, b.port}, box{high, b.proto, b.port})
			continue
		}
		p.boxes = append(p.boxes, b)
	}
	var out []ipsetPart
	for _, p := range parts {
		p.max = max(1<<16, 2*uint32(len(p.boxes)))
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b ipsetPart) int { return strings.Compare(a.name, b.name) })
	return out
}

// ipsets returns all that p wants.
func (p Plan) ipsets() []ipsetPart {
	var out []ipsetPart
	for _, s := range p.sets {
		out = append(out, s.ipsets()...)
	}
	return out
}

// filled says whether the kernel fills the set, or leases do.
func (p ipsetPart) filled() bool { return len(p.boxes) == 0 }
