package xtables

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// leases and kept are the ipsets of what is leased, and of what has answered while it was.
func leases(f plan.Family) ipset { return partsOf(f.Leases())[0].ipset }
func kept(f plan.Family) ipset   { return partsOf(f.Kept())[0].ipset }

func entryOf(e plan.Element, ttl time.Duration) ipsetEntry {
	return ipsetEntry{plan.Box{Prefix: single(e.Addr), Proto: e.Proto, Port: e.Port}, ttl}
}

func (x *Backend) Lease(ls []plan.Lease) error {
	by := map[plan.Family][]ipsetEntry{}
	for _, l := range ls {
		f := plan.FamilyOf(l.Addr)
		by[f] = append(by[f], entryOf(l.Element, max(l.TTL, 1)))
	}
	for f, entries := range by {
		if err := x.reserve(f, entries); err != nil {
			return nfnetlink.Explain("lease", err)
		}
	}
	for f, entries := range by {
		if err := setEntries(nl.IPSET_CMD_ADD, leases(f), entries); err != nil {
			return nfnetlink.Explain("lease", err)
		}
	}
	return nil
}

// reserve makes sure that entries fit, all of them, before any is added. It
// counts each as a new one, and looks at the set itself only when that could be
// too many.
func (x *Backend) reserve(f plan.Family, entries []ipsetEntry) error {
	if x.room[f] < len(entries) {
		live, err := dumpSet(leases(f).name)
		if err != nil {
			return err
		}
		if live == nil {
			return fmt.Errorf("there is no set %s: %w", leases(f).name, unix.ENOENT)
		}
		fresh := 0
		for _, e := range entries {
			if _, ok := live.entries[e.Box]; !ok {
				fresh++
			}
		}
		room := int(f.Leases().Size) - len(live.entries)
		if room < fresh {
			return fmt.Errorf("%d leases of IPv%d are there, and %d more are too many: %w", len(live.entries), f, fresh, unix.ENFILE)
		}
		x.room[f] = room - fresh
		return nil
	}
	x.room[f] -= len(entries)
	return nil
}

// Unlease: leases go first: what is not leased is not newly kept.
func (x *Backend) Unlease(es []plan.Element) error {
	by := map[plan.Family][]ipsetEntry{}
	for _, e := range es {
		f := plan.FamilyOf(e.Addr)
		by[f] = append(by[f], entryOf(e, 0))
	}
	for _, set := range []func(plan.Family) ipset{leases, kept} {
		for f, entries := range by {
			if err := setEntries(nl.IPSET_CMD_DEL, set(f), entries); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
	}
	return nil
}

func (x *Backend) Empty(set plan.Set) error {
	return setCommand(nl.IPSET_CMD_FLUSH, partName(set.Name, ""))
}

func (x *Backend) Held(set plan.Set) (out []plan.Lease, err error) {
	live, err := dumpSet(partName(set.Name, ""))
	if live == nil || err != nil { // sealed, or nothing at all
		return nil, err
	}
	for b, ttl := range live.entries {
		out = append(out, plan.Lease{Element: plan.Element{Addr: b.Prefix.Addr(), Proto: b.Proto, Port: b.Port}, TTL: ttl})
	}
	return out, nil
}
