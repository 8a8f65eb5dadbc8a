package nft

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

func (n *Backend) Seal(sealed plan.Plan) error {
	live, same, err := n.claim()
	if err != nil || same && drops(live, sealed) {
		return nfnetlink.Explain("seal", err)
	}
	return n.create(sealed, live != nil)
}

// drops says whether the base chains of live drop by default wherever those of p do.
func drops(live *liveTable, p plan.Plan) bool {
	return !slices.ContainsFunc(p.Chains, func(c plan.Chain) bool { return c.Closed && live.hooks[c.Name] != hookOf(c) })
}

// create makes the table anew with the rules of p, in one transaction. The static sets of p must be small.
func (n *Backend) create(p plan.Plan, replace bool) error {
	if _, err := wanted(p); err != nil { // before anything is queued
		return err
	}
	t := n.handle()
	if replace {
		n.conn.DelTable(t)
	}
	n.conn.AddTable(t)
	if err := n.queue(t, p, nil); err != nil {
		return err
	}
	return nfnetlink.Explain("create the table", n.conn.Flush())
}

// queue has the next transaction add what p has and the table t hasn't: sets that are not
// there, chains, those that are jumped to first, and rules, but for chains that set zones: see swap.
func (n *Backend) queue(t *nftables.Table, p plan.Plan, there map[string]string) error {
	for _, s := range p.Sets {
		if _, ok := there[s.Name]; ok {
			continue
		}
		if err := n.conn.AddSet(nftSet(t, s), fixed(s)); err != nil {
			return err
		}
	}
	for _, c := range p.Chains {
		n.conn.AddChain(nftChain(t, c))
	}
	for _, c := range p.Chains {
		if setsZones(c) {
			continue
		}
		for _, r := range c.Rules {
			es, err := compile(r, p)
			if err != nil {
				return fmt.Errorf("chain %s: %w", c.Name, err)
			}
			n.conn.AddRule(&nftables.Rule{Table: t, Chain: &nftables.Chain{Name: c.Name, Table: t}, Exprs: es})
		}
	}
	return nil
}

// Apply: the order keeps every moment closed: new sets are
// filled while rules still use the old ones, and one transaction swaps.
func (n *Backend) Apply(p, sealed plan.Plan) error {
	want, err := wanted(p)
	if err != nil { // before anything is queued
		return err
	}
	live, same, err := n.claim()
	if err != nil {
		return nfnetlink.Explain("apply", err)
	}
	if !same || misshapen(live, p) {
		// Someone else's doing, or the first time. What rules can't be
		// changed into ours go at once; then all starts from a sealed table.
		if err := n.create(sealed, live != nil); err != nil {
			return err
		}
		if live, err = n.read.table(); err != nil {
			return nfnetlink.Explain("apply", err)
		}
	} else if diffs, err := n.differences(live, p, want); err != nil {
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
	return n.swap(live, want, p)
}

// misshapen says whether live holds a chain or a set of p's name that isn't
// what p wants, which no transaction changes in place.
func misshapen(live *liveTable, p plan.Plan) bool {
	return slices.ContainsFunc(p.Chains, func(c plan.Chain) bool { return live.has(c.Name) && live.hooks[c.Name] != hookOf(c) }) ||
		slices.ContainsFunc(p.Sets, func(s plan.Set) bool { l, ok := live.sets[s.Name]; return ok && l != definition(s) })
}

// fill brings the static sets of p into the kernel, chunk by chunk, those too that a
// former try left unfinished or someone else changed.
func (n *Backend) fill(live *liveTable, p plan.Plan) error {
	for _, s := range p.Sets {
		if !s.Static {
			continue
		}
		ns := nftSet(n.handle(), s)
		if _, ok := live.sets[s.Name]; !ok {
			if err := n.conn.AddSet(ns, nil); err != nil {
				return err
			}
			if err := n.conn.Flush(); err != nil {
				return nfnetlink.Explain("fill set "+s.Name, err)
			}
			live.sets[s.Name] = definition(s)
		}
		missing, extra, err := n.read.compare(s)
		if err != nil {
			return nfnetlink.Explain("apply", err)
		}
		if s.Ending() {
			missing = nil
		}
		for i := range missing {
			missing[i].Timeout = s.Left()
		}
		if err := n.each(n.conn.SetDeleteElements, ns, extra); err != nil {
			return nfnetlink.Explain("clear set "+s.Name, err)
		}
		if err := n.each(n.conn.SetAddElements, ns, missing); err != nil {
			return nfnetlink.Explain("fill set "+s.Name, err)
		}
	}
	return nil
}

// each has do queue elements, so many that they fit into one transaction, and commits it.
func (n *Backend) each(do func(*nftables.Set, []nftables.SetElement) error, s *nftables.Set, es []nftables.SetElement) error {
	for c := range slices.Chunk(es, chunk) {
		if err := do(s, c); err != nil {
			return err
		}
		if err := n.conn.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// swap replaces all rules by those of p, which makes want, and deletes what p doesn't know.
func (n *Backend) swap(live, want *liveTable, p plan.Plan) error {
	t := n.handle()
	same, zones := zoneChains(live, want, p)
	chains := slices.Sorted(maps.Keys(live.hooks))
	for _, name := range chains {
		if !same[name] {
			n.conn.FlushChain(&nftables.Chain{Name: name, Table: t})
		}
	}
	if err := n.queue(t, p, live.sets); err != nil {
		return err
	}
	for _, name := range chains {
		if !slices.ContainsFunc(p.Chains, func(c plan.Chain) bool { return c.Name == name }) {
			n.conn.DelChain(&nftables.Chain{Name: name, Table: t})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(live.sets)) {
		if _, err := p.Set(name); err != nil {
			n.conn.DelSet(&nftables.Set{Name: name, Table: t})
		}
	}
	err := n.conn.Flush()
	for _, c := range zones {
		if err == nil {
			err = n.addZone(t, c, p)
		}
	}
	return nfnetlink.Explain("apply", err)
}

func nftChain(t *nftables.Table, c plan.Chain) *nftables.Chain {
	out := &nftables.Chain{Name: c.Name, Table: t}
	if c.Hook == "" {
		return out
	}
	out.Hooknum = map[string]*nftables.ChainHook{
		"prerouting": nftables.ChainHookPrerouting, "input": nftables.ChainHookInput, "forward": nftables.ChainHookForward,
		"output": nftables.ChainHookOutput, "postrouting": nftables.ChainHookPostrouting,
	}[c.Hook]
	out.Priority = nftables.ChainPriorityRef(nftables.ChainPriority(c.Priority))
	out.Type = map[bool]nftables.ChainType{false: nftables.ChainTypeFilter, true: nftables.ChainTypeNAT}[c.Nat]
	policy := map[bool]nftables.ChainPolicy{false: nftables.ChainPolicyAccept, true: nftables.ChainPolicyDrop}[c.Closed]
	out.Policy = &policy
	return out
}

// Verify compares what the kernel holds with p, of which Apply was told last.
func (n *Backend) Verify(p plan.Plan) error {
	live, err := n.read.table()
	if err != nil {
		return nfnetlink.Explain("verify", err)
	}
	want, err := wanted(p)
	if err != nil {
		return err
	}
	diffs, err := n.differences(live, p, want)
	if err != nil {
		return nfnetlink.Explain("verify", err)
	}
	return diffs.Err()
}

// differences compares live, which is nil for no table, with p, which makes want.
func (n *Backend) differences(live *liveTable, p plan.Plan, want *liveTable) (out plan.Diff, err error) {
	if live == nil {
		return plan.Diff{"the table is gone"}, nil
	}
	// A table that persists without an owner may be one that we adopt.
	if got := nftables.TableFlags(live.flags); got&^nftables.TableFlagPersist != n.flags&^nftables.TableFlagPersist {
		out.Note("table flags are %#x, not %#x", live.flags, uint32(n.flags))
	}
	for _, name := range slices.Sorted(maps.Keys(live.hooks)) {
		if want.has(name) && live.hooks[name] != want.hooks[name] {
			out.Note("chain %s has %q, not %q", name, live.hooks[name], want.hooks[name])
		}
	}
	out.Chains("", live.rules, want.rules)
	for _, name := range out.Names("set", maps.Keys(live.sets), maps.Keys(want.sets)) {
		if live.sets[name] != want.sets[name] {
			out.Note("set %s is defined as %q, not %q", name, live.sets[name], want.sets[name])
			continue
		}
		s, err := p.Set(name)
		if err != nil || !s.Static {
			continue
		}
		missing, extra, err := n.read.compare(s)
		if err != nil {
			return nil, err
		}
		out.Elements(name, s, len(missing), len(extra))
	}
	return out, nil
}

// wanted is the table that p makes, as the kernel would tell it.
func wanted(p plan.Plan) (*liveTable, error) {
	out := &liveTable{hooks: map[string]string{}, rules: map[string][]string{}, sets: map[string]string{}}
	for _, c := range p.Chains {
		out.hooks[c.Name], out.rules[c.Name] = hookOf(c), nil
		for _, r := range c.Rules {
			es, err := compile(r, p)
			if err != nil {
				return nil, err
			}
			s, err := canonicalOf(es)
			if err != nil {
				return nil, err
			}
			out.rules[c.Name] = append(out.rules[c.Name], s)
		}
	}
	for _, s := range p.Sets {
		out.sets[s.Name] = definition(s)
	}
	return out, nil
}

func hookOf(c plan.Chain) string {
	n := nftChain(nil, c)
	if n.Hooknum == nil {
		return ""
	}
	// The kernel has NF_DROP as 0 and NF_ACCEPT as 1, like the library.
	return hookText(string(n.Type), uint32(*n.Hooknum), int32(*n.Priority), uint32(*n.Policy))
}

func definition(s plan.Set) string {
	ns := nftSet(nil, s)
	var flags uint32
	for bit, on := range map[uint32]bool{nftables.NFT_SET_CONCAT: ns.Concatenation, unix.NFT_SET_INTERVAL: ns.Interval, unix.NFT_SET_TIMEOUT: ns.HasTimeout, unix.NFT_SET_EVAL: ns.Dynamic} {
		if on {
			flags |= bit
		}
	}
	return setText(flags, ns.KeyType.GetNFTMagic(), ns.KeyType.Bytes, uint64(ns.Timeout.Milliseconds()), ns.Size)
}
