package firewall

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// chunk is the most elements that one transaction carries. A transaction is
// one message, and the kernel bounds those by the socket's buffer.
const chunk = 1000

// nft is the backend that speaks to nf_tables. Everything that it changes
// goes through one socket, so that the kernel can bind the table to it.
type nft struct {
	conn  *nftables.Conn
	read  *nftReader
	flags nftables.TableFlags // of the table, if we create it
	log   *slog.Logger
}

// openNFT connects, and asks the kernel to hold and drop what a plan needs in
// one transaction that changes nothing.
func openNFT(owner bool, log *slog.Logger) (*nft, error) {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, explain("open netfilter socket", err)
	}
	n := &nft{conn: conn, log: log}
	if n.read, err = openReader(); err != nil {
		n.close()
		return nil, explain("open netfilter socket", err)
	}
	if owner {
		// Without the second flag the table would end with our files, which
		// is before the kernel ends the other processes of our pid namespace.
		n.flags = nftables.TableFlagOwner | nftables.TableFlagPersist
		if err := n.probe(); err == nil {
			return n, nil
		} else if !errors.Is(err, ErrUnsupported) && !errors.Is(err, unix.EINVAL) {
			n.close()
			return nil, err
		}
		log.Info("the kernel can't bind the table to its owner and keep it: others with NET_ADMIN could change it")
		n.flags = 0
	}
	if err := n.probe(); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// probe adds a table with one of everything that rules are made of, to a
// chain where no packet comes, and deletes it in the same transaction.
func (n *nft) probe() error {
	t := &nftables.Table{Name: tableName + "-probe", Family: nftables.TableFamilyINet, Flags: n.flags}
	sets := map[string]set{
		"s": {name: "s", family: ipv6, kind: static},
		"m": {name: "m", family: ipv4, kind: meter},
	}
	n.conn.AddTable(t)
	c := n.conn.AddChain(&nftables.Chain{Name: "probe", Table: t})
	for _, name := range []string{"m", "s"} {
		ns, err := nftSet(t, sets[name])
		if err == nil {
			err = n.conn.AddSet(ns, nil)
		}
		if err != nil {
			return err
		}
	}
	for _, r := range []rule{
		to(count{}, matchDst{single(engineDNS())}, matchUID{1}, matchState{stateNew}, matchSet{"s"}),
		to(log{1, "m", true}), to(reset{}, matchProto{proto: protoTCP}), to(prohibit{}),
	} {
		es, err := compile(r, sets)
		if err != nil {
			return err
		}
		n.conn.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: es})
	}
	n.conn.DelTable(t)
	err := n.conn.Flush()
	if errors.Is(err, unix.ENOENT) { // an expression that this kernel lacks
		return fmt.Errorf("probe nf_tables: %w: the kernel needs nf_tables with ct, log, limit and reject for inet: %w", ErrUnsupported, err)
	}
	return explain("probe nf_tables", err)
}

func (n *nft) name() string { return "nftables" }

func (n *nft) close() error {
	err := n.conn.CloseLasting()
	if n.read != nil {
		err = errors.Join(err, n.read.conn.Close())
	}
	return err
}

func (n *nft) portID() (uint32, error) { return n.conn.GetPortID() }

func (n *nft) handle() *nftables.Table {
	return &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet, Flags: n.flags}
}

// claim makes sure that we may change the live table, and says whether its
// flags are the ones that we would give it.
func (n *nft) claim(live *liveTable) (bool, error) {
	id, err := n.portID()
	if err != nil {
		return false, explain("claim the table", err)
	}
	switch flags := nftables.TableFlags(live.flags); {
	case flags&nftables.TableFlagOwner != 0 && live.owner != id:
		return false, fmt.Errorf("claim the table: another process (netlink port %d) holds the rules of this network namespace", live.owner)
	case flags&^nftables.TableFlagPersist == n.flags&^nftables.TableFlagPersist:
		return true, nil
	case flags == nftables.TableFlagPersist: // left by an owner that ended
		n.conn.AddTable(n.handle())
		return true, explain("adopt the table", n.conn.Flush())
	}
	return false, nil
}

// seal implements backend.
func (n *nft) seal(sealed Plan) error {
	live, err := n.read.table(tableName)
	if err != nil {
		return explain("seal", err)
	}
	if live == nil {
		return n.create(sealed, false)
	}
	ok, err := n.claim(live)
	if err != nil {
		return err
	}
	if ok && drops(live, sealed) {
		return nil
	}
	return n.create(sealed, true)
}

// drops says whether the base chains of live drop by default wherever those
// of p do.
func drops(live *liveTable, p Plan) bool {
	for _, c := range p.chains {
		if l := live.chains[c.name]; c.closed && (l == nil || l.hook != hookOf(c)) {
			return false
		}
	}
	return true
}

// create makes the table anew with the rules of p, in one transaction. The
// static sets of p must be small.
func (n *nft) create(p Plan, replace bool) error {
	t := n.handle()
	if replace {
		n.conn.DelTable(t)
	}
	n.conn.AddTable(t)
	for _, s := range p.sets {
		if err := n.addSet(t, s, s.boxes); err != nil {
			return err
		}
	}
	if err := n.addChains(t, p); err != nil {
		return err
	}
	return explain("create the table", n.conn.Flush())
}

// apply implements backend. The order keeps every moment closed: new sets are
// filled while rules still use the old ones, and one transaction swaps.
func (n *nft) apply(p, sealed Plan) error {
	live, err := n.read.table(tableName)
	if err != nil {
		return explain("apply", err)
	}
	replace := live != nil
	if live != nil {
		ok, err := n.claim(live)
		if err != nil {
			return err
		}
		if ok && !misshapen(live, p) {
			replace = false
		}
	}
	if live == nil || replace {
		// Someone else's doing, or the first time. What rules can't be
		// changed into ours go at once; then all starts from a sealed table.
		if err := n.create(sealed, replace); err != nil {
			return err
		}
		if live, err = n.read.table(tableName); err != nil {
			return explain("apply", err)
		}
	} else if diffs, err := n.differences(live, p); err != nil {
		return explain("apply", err)
	} else if len(diffs) == 0 {
		return nil
	}
	if live == nil {
		return fmt.Errorf("apply: the table is gone")
	}
	if err := n.fill(live, p); err != nil {
		return err
	}
	return n.swap(live, p)
}

// misshapen says whether live holds a chain or a set of p's name that isn't
// what p wants, which no transaction changes in place.
func misshapen(live *liveTable, p Plan) bool {
	for _, c := range p.chains {
		if l := live.chains[c.name]; l != nil && l.hook != hookOf(c) {
			return true
		}
	}
	for _, s := range p.sets {
		if l, ok := live.sets[s.name]; ok && l != definition(s) {
			return true
		}
	}
	return false
}

// fill brings the static sets of p into the kernel, chunk by chunk. Those
// that are there already, since a former try was cut short or someone else
// changed them, are brought to hold what they should.
func (n *nft) fill(live *liveTable, p Plan) error {
	t := n.handle()
	for _, s := range p.sets {
		if s.kind != static {
			continue
		}
		want := make(map[string]nftables.SetElement, len(s.boxes))
		var missing, extra []nftables.SetElement
		var have map[string]nftables.SetElement
		_, present := live.sets[s.name]
		if present {
			var err error
			if have, err = n.read.elements(tableName, s.name); err != nil {
				return explain("apply", err)
			}
		} else if err := n.addSet(t, s, nil); err != nil {
			return err
		}
		for _, b := range s.boxes {
			e := rangeElement(b)
			want[elementID(e)] = e
			if _, ok := have[elementID(e)]; !ok {
				missing = append(missing, e)
			}
		}
		for id, e := range have {
			if _, ok := want[id]; !ok {
				extra = append(extra, e)
			}
		}
		ns, err := nftSet(t, s)
		if err != nil {
			return err
		}
		for c := range slices.Chunk(extra, chunk) {
			if err := n.conn.SetDeleteElements(ns, c); err != nil {
				return err
			}
			if err := n.conn.Flush(); err != nil {
				return explain("clear set "+s.name, err)
			}
		}
		for c := range slices.Chunk(missing, chunk) {
			if err := n.conn.SetAddElements(ns, c); err != nil {
				return err
			}
			if err := n.conn.Flush(); err != nil {
				return explain("fill set "+s.name, err)
			}
		}
		live.sets[s.name] = definition(s)
	}
	return nil
}

// swap replaces all rules by those of p and deletes what p doesn't know.
func (n *nft) swap(live *liveTable, p Plan) error {
	t := n.handle()
	known := map[string]bool{}
	for _, s := range p.sets {
		known[s.name] = true
		if _, ok := live.sets[s.name]; !ok {
			if err := n.addSet(t, s, nil); err != nil {
				return err
			}
		}
	}
	chains := map[string]bool{}
	for _, c := range p.chains {
		chains[c.name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(live.chains)) {
		n.conn.FlushChain(&nftables.Chain{Name: name, Table: t})
	}
	if err := n.addChains(t, p); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(live.chains)) {
		if !chains[name] {
			n.conn.DelChain(&nftables.Chain{Name: name, Table: t})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(live.sets)) {
		if !known[name] {
			n.conn.DelSet(&nftables.Set{Name: name, Table: t})
		}
	}
	return explain("apply", n.conn.Flush())
}

func (n *nft) addSet(t *nftables.Table, s set, boxes []box) error {
	ns, err := nftSet(t, s)
	if err != nil {
		return err
	}
	var es []nftables.SetElement
	for _, b := range boxes {
		es = append(es, rangeElement(b))
	}
	return n.conn.AddSet(ns, es)
}

// addChains adds the chains of p, those that are jumped to first, and their
// rules.
func (n *nft) addChains(t *nftables.Table, p Plan) error {
	for _, c := range p.chains {
		n.conn.AddChain(nftChain(t, c))
	}
	sets := setsOf(p)
	for _, c := range p.chains {
		for _, r := range c.rules {
			es, err := compile(r, sets)
			if err != nil {
				return fmt.Errorf("chain %s: %w", c.name, err)
			}
			n.conn.AddRule(&nftables.Rule{Table: t, Chain: &nftables.Chain{Name: c.name, Table: t}, Exprs: es})
		}
	}
	return nil
}

func setsOf(p Plan) map[string]set {
	out := make(map[string]set, len(p.sets))
	for _, s := range p.sets {
		out[s.name] = s
	}
	return out
}

func nftChain(t *nftables.Table, c chain) *nftables.Chain {
	out := &nftables.Chain{Name: c.name, Table: t}
	if c.hook == "" {
		return out
	}
	out.Hooknum = map[string]*nftables.ChainHook{
		"input": nftables.ChainHookInput, "forward": nftables.ChainHookForward,
		"output": nftables.ChainHookOutput, "postrouting": nftables.ChainHookPostrouting,
	}[c.hook]
	out.Priority = nftables.ChainPriorityRef(nftables.ChainPriority(c.priority))
	out.Type = nftables.ChainTypeFilter
	if c.nat {
		out.Type = nftables.ChainTypeNAT
	}
	policy := nftables.ChainPolicyAccept
	if c.closed {
		policy = nftables.ChainPolicyDrop
	}
	out.Policy = &policy
	return out
}

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
	for c := range slices.Chunk(es, chunk) {
		if n.deleteLeases(c) == nil {
			continue
		}
		for _, e := range c {
			if err := n.deleteLeases([]Element{e}); err != nil && !errors.Is(err, unix.ENOENT) {
				return explain("revoke", err)
			}
		}
	}
	return nil
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

// verify implements backend.
func (n *nft) verify(p Plan) error {
	live, err := n.read.table(tableName)
	if err != nil {
		return explain("verify", err)
	}
	diffs, err := n.differences(live, p)
	if err != nil {
		return explain("verify", err)
	}
	return differ(diffs)
}
