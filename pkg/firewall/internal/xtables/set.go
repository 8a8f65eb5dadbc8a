package xtables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// ipsetPart is one of the ipsets that together are a set of a plan. An ipset has
// one kind of entry, and none that leaves out the port alone: so a set is split
// by that, and where the protocol is said but no port, a rule asks for it.
type ipsetPart struct {
	ipset
	proto uint8      // for rules to ask for; 0: none
	boxes []plan.Box // of static sets, as the kernel takes them
	of    plan.Set   // those too
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

// partsOf returns the parts of s, in order of their names; none for sets that
// iptables has other means for.
func partsOf(s plan.Set) []ipsetPart {
	switch part := (ipset{partName(s.Name, ""), hashIPPort, s.Family, true, s.Size}); {
	case s.Static:
		return staticParts(s)
	case s.Family == 0 || s.Each.Rate != 0: // iptables has other means
		return nil
	case !s.Dynamic:
		// The kernel looks for what has expired once a set is about full, part of
		// it at a time: so it gets room, and the limit is ours to keep.
		part.max *= 2
		fallthrough
	default:
		return []ipsetPart{{ipset: part}}
	}
}

func staticParts(s plan.Set) []ipsetPart {
	parts := map[string]*ipsetPart{}
	for _, b := range s.Boxes {
		key, typ, proto := "-p", hashNetPort, uint8(0)
		switch {
		case b.Port == 0 && b.Proto == 0:
			key, typ = "-n", hashNet
		case b.Port == 0:
			key, typ, proto = fmt.Sprintf("-%d", b.Proto), hashNet, b.Proto
			b.Proto = 0
		}
		if parts[key] == nil {
			parts[key] = &ipsetPart{ipset: ipset{name: partName(s.Name, key), typ: typ, family: s.Family, timed: !s.Until.IsZero()}, proto: proto, of: s}
		}
		p := parts[key]
		if b.Prefix.Bits() == 0 { // which an ipset can't hold
			b.Prefix = netip.PrefixFrom(b.Prefix.Addr(), 1)
			p.boxes = append(p.boxes, b)
			b.Prefix = netip.PrefixFrom(b.Last().Next(), 1)
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

// partsOfAll returns the parts of all sets of p.
func partsOfAll(p plan.Plan) []ipsetPart {
	var out []ipsetPart
	for _, s := range p.Sets {
		out = append(out, partsOf(s)...)
	}
	return out
}

// filled says whether the kernel fills the set, or leases do.
func (p ipsetPart) filled() bool { return len(p.boxes) == 0 }
