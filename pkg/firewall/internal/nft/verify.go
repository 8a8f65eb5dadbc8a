package nft

import (
	"fmt"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// Verify implements backend.
func (n *Backend) Verify(p plan.Plan) error {
	live, err := n.read.table(plan.TableName)
	if err != nil {
		return nfnetlink.Explain("verify", err)
	}
	diffs, err := n.differences(live, p)
	if err != nil {
		return nfnetlink.Explain("verify", err)
	}
	return plan.Differ(diffs)
}

// differences compares live, which is nil for no table, with p.
func (n *Backend) differences(live *liveTable, p plan.Plan) ([]string, error) {
	if live == nil {
		return []string{"the table is gone"}, nil
	}
	var out []string
	note := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }

	// A table that persists without an owner may be one that we adopt.
	if got := nftables.TableFlags(live.flags); got&^nftables.TableFlagPersist != n.flags&^nftables.TableFlagPersist {
		note("table flags are %#x, not %#x", live.flags, uint32(n.flags))
	}
	chains, err := wantedChains(p)
	if err != nil {
		return nil, err
	}
	for _, name := range plan.SortedUnion(live.chains, chains) {
		switch l, w := live.chains[name], chains[name]; {
		case l == nil:
			note("chain %s is gone", name)
		case w == nil:
			note("chain %s is foreign", name)
		case l.hook != w.hook:
			note("chain %s has %q, not %q", name, l.hook, w.hook)
		case !slices.Equal(l.rules, w.rules):
			note("chain %s has other rules (%d, not %d; first difference at rule %d)", name, len(l.rules), len(w.rules), plan.FirstDiff(l.rules, w.rules)+1)
		}
	}
	sets := plan.SetsOf(p)
	for _, name := range plan.SortedUnion(live.sets, sets) {
		s, wanted := sets[name]
		l, there := live.sets[name]
		switch {
		case !there:
			note("set %s is gone", name)
		case !wanted:
			note("set %s is foreign", name)
		case l != definition(s):
			note("set %s is defined as %q, not %q", name, l, definition(s))
		case s.Kind == plan.Static:
			have, err := n.read.elements(plan.TableName, name)
			if err != nil {
				return nil, err
			}
			missing := 0
			for _, b := range s.Boxes {
				if _, ok := have[elementID(rangeElement(b))]; !ok {
					missing++
				}
			}
			if extra := len(have) - (len(s.Boxes) - missing); missing > 0 && !s.Ending() || extra > 0 {
				note("set %s lacks %d elements and has %d foreign ones", name, missing, extra)
			}
		}
	}
	return out, nil
}

func wantedChains(p plan.Plan) (map[string]*liveChain, error) {
	sets := plan.SetsOf(p)
	out := make(map[string]*liveChain, len(p.Chains))
	for _, c := range p.Chains {
		l := &liveChain{hook: hookOf(c)}
		for _, r := range c.Rules {
			es, err := compile(r, sets)
			if err != nil {
				return nil, err
			}
			s, err := canonicalOf(es)
			if err != nil {
				return nil, err
			}
			l.rules = append(l.rules, s)
		}
		out[c.Name] = l
	}
	return out, nil
}

// hookOf returns the hook of c as the kernel would tell it.
func hookOf(c plan.Chain) string {
	n := nftChain(nil, c)
	if n.Hooknum == nil {
		return ""
	}
	// The kernel has NF_DROP as 0 and NF_ACCEPT as 1, like the library.
	return hookText(string(n.Type), uint32(*n.Hooknum), int32(*n.Priority), uint32(*n.Policy))
}

// definition returns the definition of s as the kernel would tell it.
func definition(s plan.Set) liveSet {
	ns, err := nftSet(nil, s)
	if err != nil {
		return liveSet("impossible: " + err.Error())
	}
	var flags uint32
	if ns.Concatenation {
		flags |= nftables.NFT_SET_CONCAT
	}
	for bit, on := range map[uint32]bool{unix.NFT_SET_INTERVAL: ns.Interval, unix.NFT_SET_TIMEOUT: ns.HasTimeout, unix.NFT_SET_EVAL: ns.Dynamic} {
		if on {
			flags |= bit
		}
	}
	return setText(flags, ns.KeyType.GetNFTMagic(), ns.KeyType.Bytes, uint64(ns.Timeout.Milliseconds()), ns.Size)
}
