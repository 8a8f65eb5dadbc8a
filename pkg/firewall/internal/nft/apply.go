package nft

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/nftables"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// Seal implements backend.
func (n *Backend) Seal(sealed plan.Plan) error {
	live, err := n.read.table(plan.TableName)
	if err != nil {
		return nfnetlink.Explain("seal", err)
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
func drops(live *liveTable, p plan.Plan) bool {
	for _, c := range p.Chains {
		if l := live.chains[c.Name]; c.Closed && (l == nil || l.hook != hookOf(c)) {
			return false
		}
	}
	return true
}

// create makes the table anew with the rules of p, in one transaction. The
// static sets of p must be small.
func (n *Backend) create(p plan.Plan, replace bool) error {
	if _, err := wantedChains(p); err != nil { // before anything is queued
		return err
	}
	t := n.handle()
	if replace {
		n.conn.DelTable(t)
	}
	n.conn.AddTable(t)
	for _, s := range p.Sets {
		if err := n.addSet(t, s, s.Boxes); err != nil {
			return err
		}
	}
	if err := n.addChains(t, p); err != nil {
		return err
	}
	return nfnetlink.Explain("create the table", n.conn.Flush())
}

// Apply implements backend. The order keeps every moment closed: new sets are
// filled while rules still use the old ones, and one transaction swaps.
func (n *Backend) Apply(p, sealed plan.Plan) error {
	if _, err := wantedChains(p); err != nil { // before anything is queued
		return err
	}
	live, err := n.read.table(plan.TableName)
	if err != nil {
		return nfnetlink.Explain("apply", err)
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
		if live, err = n.read.table(plan.TableName); err != nil {
			return nfnetlink.Explain("apply", err)
		}
	} else if diffs, err := n.differences(live, p); err != nil {
		return nfnetlink.Explain("apply", err)
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
func misshapen(live *liveTable, p plan.Plan) bool {
	for _, c := range p.Chains {
		if l := live.chains[c.Name]; l != nil && l.hook != hookOf(c) {
			return true
		}
	}
	for _, s := range p.Sets {
		if l, ok := live.sets[s.Name]; ok && l != definition(s) {
			return true
		}
	}
	return false
}

// fill brings the static sets of p into the kernel, chunk by chunk. Those
// that are there already, since a former try was cut short or someone else
// changed them, are brought to hold what they should.
func (n *Backend) fill(live *liveTable, p plan.Plan) error {
	t := n.handle()
	for _, s := range p.Sets {
		if s.Kind != plan.Static {
			continue
		}
		want := make(map[string]nftables.SetElement, len(s.Boxes))
		var missing, extra []nftables.SetElement
		var have map[string]nftables.SetElement
		_, present := live.sets[s.Name]
		if present {
			var err error
			if have, err = n.read.elements(plan.TableName, s.Name); err != nil {
				return nfnetlink.Explain("apply", err)
			}
		} else if err := n.addSet(t, s, nil); err != nil {
			return err
		}
		for _, b := range s.Boxes {
			e := rangeElement(b)
			want[elementID(e)] = e
			if _, ok := have[elementID(e)]; !ok && !s.Ending() {
				e.Timeout = s.Left()
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
				return nfnetlink.Explain("clear set "+s.Name, err)
			}
		}
		for c := range slices.Chunk(missing, chunk) {
			if err := n.conn.SetAddElements(ns, c); err != nil {
				return err
			}
			if err := n.conn.Flush(); err != nil {
				return nfnetlink.Explain("fill set "+s.Name, err)
			}
		}
		live.sets[s.Name] = definition(s)
	}
	return nil
}

// swap replaces all rules by those of p and deletes what p doesn't know.
func (n *Backend) swap(live *liveTable, p plan.Plan) error {
	t := n.handle()
	known := map[string]bool{}
	for _, s := range p.Sets {
		known[s.Name] = true
		if _, ok := live.sets[s.Name]; !ok {
			if err := n.addSet(t, s, nil); err != nil {
				return err
			}
		}
	}
	chains := map[string]bool{}
	for _, c := range p.Chains {
		chains[c.Name] = true
	}
	same, zones, err := zoneChains(live, p)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(live.chains)) {
		if !same[name] {
			n.conn.FlushChain(&nftables.Chain{Name: name, Table: t})
		}
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
	if err := n.conn.Flush(); err != nil {
		return nfnetlink.Explain("apply", err)
	}
	for _, c := range zones {
		if err := n.addZone(t, c); err != nil {
			return nfnetlink.Explain("apply", err)
		}
	}
	return nil
}

func (n *Backend) addSet(t *nftables.Table, s plan.Set, boxes []plan.Box) error {
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
func (n *Backend) addChains(t *nftables.Table, p plan.Plan) error {
	for _, c := range p.Chains {
		n.conn.AddChain(nftChain(t, c))
	}
	sets := plan.SetsOf(p)
	for _, c := range p.Chains {
		for _, r := range c.Rules {
			if setsZone(r) { // see swap
				continue
			}
			es, err := compile(r, sets)
			if err != nil {
				return fmt.Errorf("chain %s: %w", c.Name, err)
			}
			n.conn.AddRule(&nftables.Rule{Table: t, Chain: &nftables.Chain{Name: c.Name, Table: t}, Exprs: es})
		}
	}
	return nil
}

func nftChain(t *nftables.Table, c plan.Chain) *nftables.Chain {
	out := &nftables.Chain{Name: c.Name, Table: t}
	if c.Hook == "" {
		return out
	}
	out.Hooknum = map[string]*nftables.ChainHook{
		"input": nftables.ChainHookInput, "forward": nftables.ChainHookForward,
		"output": nftables.ChainHookOutput, "postrouting": nftables.ChainHookPostrouting,
	}[c.Hook]
	out.Priority = nftables.ChainPriorityRef(nftables.ChainPriority(c.Priority))
	out.Type = nftables.ChainTypeFilter
	if c.Nat {
		out.Type = nftables.ChainTypeNAT
	}
	policy := nftables.ChainPolicyAccept
	if c.Closed {
		policy = nftables.ChainPolicyDrop
	}
	out.Policy = &policy
	return out
}
