package firewall

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// lease implements backend: each element is added, deleted and added in one
// transaction, since before Linux 6.12 adding an element again left its time
// as it was.
func (n *nft) lease(ls []Lease) error {
	last := make(map[Element]Lease, len(ls))
	for _, l := range ls {
		if old, ok := last[l.Element]; !ok || l.TTL > old.TTL {
			last[l.Element] = l
		}
	}
	todo := slices.Collect(maps.Values(last))
	for c := range slices.Chunk(todo, chunk) {
		by := map[family][]nftables.SetElement{}
		for _, l := range c {
			f := familyOf(l.Addr)
			by[f] = append(by[f], leaseElement(l.Element, max(l.TTL, 1)))
		}
		for f, es := range by {
			ns, err := nftSet(n.handle(), set{name: leaseSet(f), family: f, kind: leased})
			if err != nil {
				return err
			}
			if err := errors.Join(n.conn.SetAddElements(ns, es), n.conn.SetDeleteElements(ns, es), n.conn.SetAddElements(ns, es)); err != nil {
				return err
			}
		}
		if err := n.conn.Flush(); err != nil {
			return explain("lease", err)
		}
	}
	return nil
}

// unlease implements backend. An element may expire at any time, so each goes
// in a transaction of its own if they don't go together.
func (n *nft) unlease(es []Element) error {
	var failed error // the first, which keeps none of the others
	for c := range slices.Chunk(es, chunk) {
		if n.deleteLeases(c) == nil {
			continue
		}
		for _, e := range c {
			if err := n.deleteLeases([]Element{e}); err != nil && !errors.Is(err, unix.ENOENT) {
				failed = cmp.Or(failed, err)
			}
		}
	}
	return explain("revoke", failed)
}

func (n *nft) deleteLeases(es []Element) error {
	for _, e := range es {
		f := familyOf(e.Addr)
		ns, err := nftSet(n.handle(), set{name: leaseSet(f), family: f, kind: leased})
		if err != nil {
			return err
		}
		if err := n.conn.SetDeleteElements(ns, []nftables.SetElement{leaseElement(e, 0)}); err != nil {
			return err
		}
	}
	return n.conn.Flush()
}

// unleaseAll implements backend.
func (n *nft) unleaseAll() error {
	live, err := n.read.table(tableName)
	if err != nil || live == nil {
		return explain("revoke all", err)
	}
	for _, f := range families() {
		if _, ok := live.sets[leaseSet(f)]; ok {
			n.conn.FlushSet(&nftables.Set{Name: leaseSet(f), Table: n.handle()})
		}
	}
	return explain("revoke all", n.conn.Flush())
}

// leases implements backend.
func (n *nft) leases() ([]Lease, error) {
	var out []Lease
	for _, f := range families() {
		err := n.read.eachElement(tableName, leaseSet(f), func(e nftables.SetElement) error {
			l, err := leaseOfKey(e.Key)
			out = append(out, Lease{l, e.Expires})
			return err
		})
		if errors.Is(err, unix.ENOENT) { // sealed, or no table at all
			continue
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
