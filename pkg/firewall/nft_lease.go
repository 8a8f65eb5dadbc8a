package firewall

import (
	"errors"
	"maps"
	"slices"
	"time"

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

// unlease implements backend, in one transaction for each thousand elements.
func (n *nft) unlease(es []Element) error {
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

func (n *nft) deleteLeases(es []Element, add bool) error {
	by := map[family][]nftables.SetElement{}
	for _, e := range es {
		ttl := time.Duration(0)
		if add {
			ttl = time.Second
		}
		by[familyOf(e.Addr)] = append(by[familyOf(e.Addr)], leaseElement(e, ttl))
	}
	for f, es := range by {
		for _, s := range []set{{name: leaseSet(f), family: f, kind: leased}, {name: keptSet(f), family: f, kind: living}} {
			ns, err := nftSet(n.handle(), s)
			if err != nil {
				return err
			}
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

// unleaseAll implements backend.
func (n *nft) unleaseAll() error {
	live, err := n.read.table(tableName)
	if err != nil || live == nil {
		return explain("revoke all", err)
	}
	for _, f := range families() {
		for _, name := range []string{leaseSet(f), keptSet(f)} {
			if _, ok := live.sets[name]; ok {
				n.conn.FlushSet(&nftables.Set{Name: name, Table: n.handle()})
			}
		}
	}
	return explain("revoke all", n.conn.Flush())
}

// leases implements backend.
func (n *nft) leases() ([]Lease, error) { return n.timed(leaseSet) }

// kept implements backend.
func (n *nft) kept() ([]Lease, error) { return n.timed(keptSet) }

func (n *nft) timed(set func(family) string) ([]Lease, error) {
	var out []Lease
	for _, f := range families() {
		err := n.read.eachElement(tableName, set(f), func(e nftables.SetElement) error {
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
