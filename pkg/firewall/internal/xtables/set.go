package xtables

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// whole is the ipset of a set that leases fill, or the kernel.
func whole(s plan.Set) ipset { return partsOf(s)[0].ipset }

func entryOf(e plan.Element, ttl time.Duration) ipsetEntry {
	return ipsetEntry{plan.Box{Prefix: single(e.Addr), Proto: e.Proto, Port: e.Port}, ttl}
}

func (x *Backend) Lease(ls []plan.Lease) error {
	by := map[ipset][]ipsetEntry{}
	for _, l := range ls {
		s := whole(plan.FamilyOf(l.Addr).Leases(l.For))
		by[s] = append(by[s], entryOf(l.Element, l.TTL))
	}
	for s, entries := range by {
		if err := x.reserve(s, entries); err != nil {
			return nfnetlink.Explain("lease", err)
		}
	}
	for s, entries := range by {
		if err := setEntries(nl.IPSET_CMD_ADD, s, entries); err != nil {
			return nfnetlink.Explain("lease", err)
		}
	}
	return nil
}

// reserve makes sure that entries fit, all of them, before any is added. It looks at the set if they may not.
func (x *Backend) reserve(s ipset, entries []ipsetEntry) error {
	if x.room[s.name] >= len(entries) {
		x.room[s.name] -= len(entries)
		return nil
	}
	live, err := dumpSet(s.name)
	if err != nil {
		return err
	}
	if live == nil {
		return fmt.Errorf("there is no set %s: %w", s.name, unix.ENOENT)
	}
	fresh := 0
	for _, e := range entries {
		if _, ok := live.entries[e.Box]; !ok {
			fresh++
		}
	}
	x.room[s.name] = int(s.max/leasesRoom) - len(live.entries) - fresh
	if x.room[s.name] < 0 {
		return fmt.Errorf("%d leases are in %s, and %d more are too many: %w", len(live.entries), s.name, fresh, unix.ENFILE)
	}
	return nil
}

// Unlease: leases go first: what is not leased is not newly kept.
func (x *Backend) Unlease(es []plan.Element) error {
	for _, kept := range []bool{false, true} {
		by := map[ipset][]ipsetEntry{}
		for _, e := range es {
			for _, set := range plan.FamilyOf(e.Addr).Of(e.For) {
				if s := whole(set); set.Dynamic == kept {
					by[s] = append(by[s], entryOf(e, 0))
				}
			}
		}
		for s, entries := range by {
			if err := setEntries(nl.IPSET_CMD_DEL, s, entries); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
	}
	return nil
}

func (x *Backend) Empty(sets []plan.Set) error {
	for _, s := range sets {
		if err := setCommand(nl.IPSET_CMD_FLUSH, partName(s.Name, "")); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

func (x *Backend) Held(set plan.Set, each func(plan.Lease)) error {
	live, err := dumpSet(partName(set.Name, ""))
	if live == nil || err != nil { // sealed, or nothing at all
		return err
	}
	for b, ttl := range live.entries {
		each(plan.Lease{Element: plan.Element{Addr: b.Prefix.Addr(), Proto: b.Proto, Port: b.Port, For: set.For}, TTL: ttl})
	}
	return nil
}

// ipsetPart is one of the ipsets that together are a set of a plan. An ipset has one kind of entry, and none that
// leaves out the port alone: so a set is split by that, and where the protocol is said but no port, a rule asks for it.
type ipsetPart struct {
	ipset
	proto uint8      // for rules to ask for; 0: none
	boxes []plan.Box // of static sets, as the kernel takes them
	of    plan.Set   // those too
}

// partName returns the name of a part of a set of a plan: "agent-init-", the set's name, and what tells it from other
// parts. The hash that ends the names of static sets is cut to what an ipset's name has room for.
func partName(set, part string) string {
	if i := strings.LastIndexByte(set, '-'); i >= 0 && len(set) > i+10 {
		set = set[:i+10]
	}
	return xtPrefix + set + part
}

// partsOf returns the parts of s, in order of their names; none for sets that iptables has other means for.
func partsOf(s plan.Set) []ipsetPart {
	part := ipset{partName(s.Name, ""), hashIPPort, s.Family, true, s.Size}
	switch {
	case s.Static:
		return staticParts(s)
	case s.Family == 0 || s.Each.Rate != 0:
		return nil
	case !s.Dynamic:
		// The kernel looks for what has expired once a set is about full, part of
		// it at a time: so it gets room, and the limit is ours to keep.
		part.max *= leasesRoom
	}
	return []ipsetPart{{ipset: part}}
}

// leasesRoom is by how much an ipset of leases is larger than what it is to hold.
const leasesRoom = 2

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
	for _, key := range slices.Sorted(maps.Keys(parts)) {
		parts[key].max = max(1<<16, 2*uint32(len(parts[key].boxes)))
		out = append(out, *parts[key])
	}
	return out
}

func partsOfAll(p plan.Plan) []ipsetPart {
	var out []ipsetPart
	for _, s := range p.Sets {
		out = append(out, partsOf(s)...)
	}
	return out
}

// filled says whether the kernel fills the set, or leases do.
func (p ipsetPart) filled() bool { return len(p.boxes) == 0 }
