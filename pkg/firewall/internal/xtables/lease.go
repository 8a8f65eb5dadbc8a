package xtables

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

func leaseIPSet(f plan.Family) ipset {
	return partsOf(plan.Set{Name: plan.LeaseSet(f), Family: f, Kind: plan.Leased})[0].ipset
}

func keptIPSet(f plan.Family) ipset {
	return partsOf(plan.Set{Name: plan.KeptSet(f), Family: f, Kind: plan.Living})[0].ipset
}

func boxOf(e plan.Element) plan.Box {
	return plan.Box{Prefix: plan.Single(e.Addr), Proto: e.Proto, Port: e.Port}
}

// Lease implements backend.
func (x *Backend) Lease(ls []plan.Lease) error {
	last := make(map[plan.Element]time.Duration, len(ls))
	for _, l := range ls {
		last[l.Element] = max(last[l.Element], l.TTL, 1)
	}
	by := map[plan.Family][]ipsetEntry{}
	for e, ttl := range last {
		f := plan.FamilyOf(e.Addr)
		by[f] = append(by[f], ipsetEntry{boxOf(e), ttl})
	}
	for f, entries := range by {
		if err := x.reserve(f, entries); err != nil {
			return nfnetlink.Explain("lease", err)
		}
	}
	for f, entries := range by {
		if err := x.sets.add(leaseIPSet(f), entries); err != nil {
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
		live, err := x.sets.dump(leaseIPSet(f).name)
		if err != nil {
			return err
		}
		if live == nil {
			return fmt.Errorf("there is no set %s: %w", leaseIPSet(f).name, unix.ENOENT)
		}
		fresh := 0
		for _, e := range entries {
			if _, ok := live.entries[e.Box]; !ok {
				fresh++
			}
		}
		room := plan.MaxLeases - len(live.entries)
		if room < fresh {
			return fmt.Errorf("%d leases of IPv%d are there, and %d more are too many: %w", len(live.entries), f, fresh, unix.ENFILE)
		}
		x.room[f] = room - fresh
		return nil
	}
	x.room[f] -= len(entries)
	return nil
}

// Unlease implements backend. Leases go first: what is not leased is not newly kept.
func (x *Backend) Unlease(es []plan.Element) error {
	by := map[plan.Family][]ipsetEntry{}
	for _, e := range es {
		f := plan.FamilyOf(e.Addr)
		by[f] = append(by[f], ipsetEntry{Box: boxOf(e)})
	}
	for _, set := range []func(plan.Family) ipset{leaseIPSet, keptIPSet} {
		for f, entries := range by {
			if err := x.sets.del(set(f), entries); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
	}
	return nil
}

// UnleaseAll implements backend.
func (x *Backend) UnleaseAll() error {
	for _, set := range []func(plan.Family) ipset{leaseIPSet, keptIPSet} {
		for _, f := range plan.Families() {
			if err := x.sets.flush(set(f).name); err != nil && !errors.Is(err, unix.ENOENT) {
				return nfnetlink.Explain("revoke all", err)
			}
		}
	}
	return nil
}

// Leases implements backend.
func (x *Backend) Leases() ([]plan.Lease, error) { return x.timed(leaseIPSet) }

// Kept implements backend.
func (x *Backend) Kept() ([]plan.Lease, error) { return x.timed(keptIPSet) }

func (x *Backend) timed(set func(plan.Family) ipset) ([]plan.Lease, error) {
	var out []plan.Lease
	for _, f := range plan.Families() {
		live, err := x.sets.dump(set(f).name)
		if err != nil {
			return nil, err
		}
		if live == nil { // sealed, or nothing at all
			continue
		}
		for b, ttl := range live.entries {
			out = append(out, plan.Lease{Element: plan.Element{Addr: b.Prefix.Addr(), Proto: b.Proto, Port: b.Port}, TTL: ttl})
		}
	}
	return out, nil
}
