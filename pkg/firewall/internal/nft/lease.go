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
		if err := n.change(c, []func(plan.Family) plan.Set{plan.Family.Leases}, add, del, add); err != nil {
			return nfnetlink.Explain("lease", err)
		}
	}
	return nil
}

func (n *Backend) Unlease(es []plan.Element) error {
	both := []func(plan.Family) plan.Set{plan.Family.Leases, plan.Family.Kept}
	for c := range slices.Chunk(es, chunk/2) {
		var lapsed, brief []plan.Lease
		for _, e := range c {
			lapsed, brief = append(lapsed, plan.Lease{Element: e}), append(brief, plan.Lease{Element: e, TTL: time.Second})
		}
		// An element may expire at any time, and to delete one that isn't there
		// fails them all: so each is added first, which is no error for one that is.
		err := n.change(brief, both, n.conn.SetAddElements, n.conn.SetDeleteElements)
		if errors.Is(err, unix.ENFILE) { // there is no room to add one
			err = n.change(lapsed, both, n.conn.SetDeleteElements)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// change does steps with elements in sets of their family, in one transaction.
func (n *Backend) change(ls []plan.Lease, sets []func(plan.Family) plan.Set, steps ...func(*nftables.Set, []nftables.SetElement) error) error {
	by := map[plan.Family][]nftables.SetElement{}
	for _, l := range ls {
		f := plan.FamilyOf(l.Addr)
		by[f] = append(by[f], leaseElement(l))
	}
	for f, es := range by {
		for _, set := range sets {
			for _, step := range steps {
				if err := step(nftSet(n.handle(), set(f)), es); err != nil {
					return err
				}
			}
		}
	}
	return n.conn.Flush()
}

func (n *Backend) Empty(set plan.Set) error {
	// One that is not there would end the transaction, which waits for all processors (nf_tables_abort).
	if live, err := n.read.table(); err != nil || live == nil || live.sets[set.Name] == "" {
		return err
	}
	n.conn.FlushSet(&nftables.Set{Name: set.Name, Table: n.handle()})
	return n.conn.Flush()
}

func (n *Backend) Held(set plan.Set) (out []plan.Lease, err error) {
	err = n.read.elements(set.Name, func(e nftables.SetElement) error {
		l, err := leaseOfKey(e.Key)
		out = append(out, plan.Lease{Element: l, TTL: e.Expires})
		return err
	})
	return out, err
}
