package nft

import (
	"maps"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

func (n *Backend) Verify(p plan.Plan) error {
	live, err := n.read.table()
	if err != nil {
		return nfnetlink.Explain("verify", err)
	}
	diffs, err := n.differences(live, p)
	if err != nil {
		return nfnetlink.Explain("verify", err)
	}
	return diffs.Err()
}

// differences compares live, which is nil for no table, with p.
func (n *Backend) differences(live *liveTable, p plan.Plan) (out plan.Diff, err error) {
	if live == nil {
		return plan.Diff{"the table is gone"}, nil
	}
	// A table that persists without an owner may be one that we adopt.
	if got := nftables.TableFlags(live.flags); got&^nftables.TableFlagPersist != n.flags&^nftables.TableFlagPersist {
		out.Note("table flags are %#x, not %#x", live.flags, uint32(n.flags))
	}
	want, err := wanted(p)
	if err != nil {
		return nil, err
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
