package firewall

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

func leaseIPSet(f family) ipset {
	return set{name: leaseSet(f), family: f, kind: leased}.ipsets()[0].ipset
}

func keptIPSet(f family) ipset {
	return set{name: keptSet(f), family: f, kind: living}.ipsets()[0].ipset
}

func (e Element) box() box { return box{single(e.Addr), e.Proto, e.Port} }

// lease implements backend.
func (x *xt) lease(ls []Lease) error {
	last := make(map[Element]time.Duration, len(ls))
	for _, l := range ls {
		last[l.Element] = max(last[l.Element], l.TTL, 1)
	}
	by := map[family][]ipsetEntry{}
	for e, ttl := range last {
		f := familyOf(e.Addr)
		by[f] = append(by[f], ipsetEntry{e.box(), ttl})
	}
	for f, entries := range by {
		if err := x.reserve(f, entries); err != nil {
			return explain("lease", err)
		}
	}
	for f, entries := range by {
		if err := x.sets.add(leaseIPSet(f), entries); err != nil {
			return explain("lease", err)
		}
	}
	return nil
}

// reserve makes sure that entries fit, all of them, before any is added. It
// counts each as a new one, and looks at the set itself only when that could be
// too many.
func (x *xt) reserve(f family, entries []ipsetEntry) error {
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
			if _, ok := live.entries[e.box]; !ok {
				fresh++
			}
		}
		room := maxLeases - len(live.entries)
		if room < fresh {
			return fmt.Errorf("%d leases of IPv%d are there, and %d more are too many: %w", len(live.entries), f, fresh, unix.ENFILE)
		}
		x.room[f] = room - fresh
		return nil
	}
	x.room[f] -= len(entries)
	return nil
}

// unlease implements backend. Leases go first: what is not leased is not newly kept.
func (x *xt) unlease(es []Element) error {
	by := map[family][]ipsetEntry{}
	for _, e := range es {
		f := familyOf(e.Addr)
		by[f] = append(by[f], ipsetEntry{box: e.box()})
	}
	for _, set := range []func(family) ipset{leaseIPSet, keptIPSet} {
		for f, entries := range by {
			if err := x.sets.del(set(f), entries); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
	}
	return nil
}

// unleaseAll implements backend.
func (x *xt) unleaseAll() error {
	for _, set := range []func(family) ipset{leaseIPSet, keptIPSet} {
		for _, f := range families() {
			if err := x.sets.flush(set(f).name); err != nil && !errors.Is(err, unix.ENOENT) {
				return explain("revoke all", err)
			}
		}
	}
	return nil
}

// leases implements backend.
func (x *xt) leases() ([]Lease, error) { return x.timed(leaseIPSet) }

// kept implements backend.
func (x *xt) kept() ([]Lease, error) { return x.timed(keptIPSet) }

func (x *xt) timed(set func(family) ipset) ([]Lease, error) {
	var out []Lease
	for _, f := range families() {
		live, err := x.sets.dump(set(f).name)
		if err != nil {
			return nil, err
		}
		if live == nil { // sealed, or nothing at all
			continue
		}
		for b, ttl := range live.entries {
			out = append(out, Lease{Element{b.prefix.Addr(), b.proto, b.port}, ttl})
		}
	}
	return out, nil
}
