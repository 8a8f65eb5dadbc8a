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

// Lease: each element is added, deleted and added in one
// transaction, since before Linux 6.12 adding an element again left its time
// as it was.
func (n *Backend) Lease(ls []plan.Lease) error {
	for c := range slices.Chunk(ls, chunk) {
		by := map[plan.Family][]nftables.SetElement{}
		for _, l := range c {
			f := plan.FamilyOf(l.Addr)
			by[f] = append(by[f], leaseElement(l.Element, max(l.TTL, 1)))
		}
		for f, es := range by {
			ns := nftSet(n.handle(), f.Leases())
			if err := errors.Join(n.conn.SetAddElements(ns, es), n.conn.SetDeleteElements(ns, es), n.conn.SetAddElements(ns, es)); err != nil {
				return err
			}
		}
		if err := n.conn.Flush(); err != nil {
			return nfnetlink.Explain("lease", err)
		}
	}
	return nil
}

func (n *Backend) Unlease(es []plan.Element) error {
	for c := range slices.Chunk(es, chunk/2) {
		// An element may expire at any time, and to delete one that isn't there
		// fails them all: so each is added first, which is no error for one that is.
		err := n.deleteLeases(c, true)
		if errors.Is(err, unix.ENFILE) { // there is no room to add one
			err = n.deleteLeases(c, false)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

func (n *Backend) deleteLeases(es []plan.Element, add bool) error {
	by := map[plan.Family][]nftables.SetElement{}
	for _, e := range es {
		ttl := time.Duration(0)
		if add {
			ttl = time.Second
		}
		by[plan.FamilyOf(e.Addr)] = append(by[plan.FamilyOf(e.Addr)], leaseElement(e, ttl))
	}
	for f, es := range by {
		for _, s := range []plan.Set{f.Leases(), f.Kept()} {
			var err error
			ns := nftSet(n.handle(), s)
			if add {
				err = n.conn.SetAddElements(ns, es)
			}
			if err := errors.Join(err, n.conn.SetDeleteElements(ns, es)); err != nil {
				return err
			}
		}
	}
	return n.conn.Flush()
}

func (n *Backend) Empty(set plan.Set) error {
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
