package nft

import (
	"errors"
	"slices"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// Lease: each element is added, deleted and added in one transaction: before Linux 6.12 adding again left its time.
func (n *Backend) Lease(ls []plan.Lease) error {
	add, del := n.conn.SetAddElements, n.conn.SetDeleteElements
	for c := range slices.Chunk(ls, chunk) {
		if err := n.change(c, func(f plan.Family, h plan.Holder) []plan.Set { return []plan.Set{f.Leases(h)} }, add, del, add); err != nil {
			return nfnetlink.Explain("lease", err)
		}
	}
	return nil
}

func (n *Backend) Unlease(es []plan.Element) error {
	for c := range slices.Chunk(es, chunk/2) {
		var lapsed, brief []plan.Lease
		for _, e := range c {
			lapsed, brief = append(lapsed, plan.Lease{Element: e}), append(brief, plan.Lease{Element: e, TTL: time.Second})
		}
		// An element may expire at any time, and to delete one that isn't there
		// fails them all: so each is added first, which is no error for one that is.
		err := n.change(brief, plan.Family.Of, n.conn.SetAddElements, n.conn.SetDeleteElements)
		if errors.Is(err, unix.ENFILE) { // there is no room to add one
			err = n.change(lapsed, plan.Family.Of, n.conn.SetDeleteElements)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// change does steps with elements in sets of their family and holder, in one transaction.
func (n *Backend) change(ls []plan.Lease, sets func(plan.Family, plan.Holder) []plan.Set, steps ...func(*nftables.Set, []nftables.SetElement) error) error {
	type place struct {
		family plan.Family
		holder plan.Holder
	}
	by := map[place][]nftables.SetElement{}
	for _, l := range ls {
		p := place{plan.FamilyOf(l.Addr), l.For}
		by[p] = append(by[p], leaseElement(l))
	}
	for p, es := range by {
		for _, set := range sets(p.family, p.holder) {
			for _, step := range steps {
				if err := step(nftSet(n.handle(), set), es); err != nil {
					return err
				}
			}
		}
	}
	return n.conn.Flush()
}

// Empty looks first: a set that is not there would end the transaction, which waits for all processors (nf_tables_abort).
func (n *Backend) Empty(sets []plan.Set) error {
	live, err := n.read.table()
	if err != nil || live == nil {
		return err
	}
	for _, s := range sets {
		if live.sets[s.Name] != "" {
			n.conn.FlushSet(&nftables.Set{Name: s.Name, Table: n.handle()})
		}
	}
	return n.conn.Flush()
}

func (n *Backend) Held(set plan.Set, each func(plan.Lease)) error {
	return n.read.elements(set.Name, func(e nftables.SetElement) error {
		l, err := leaseOfKey(e.Key)
		if err != nil {
			return err
		}
		l.For = set.For
		each(plan.Lease{Element: l, TTL: e.Expires})
		return nil
	})
}
