package xtables

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// xtMark is what iptables said of our chains right after it had loaded a plan.
// How it puts a rule depends on its version, so what it says later is compared
// with that, word for word; and that is compared with the plan, once.
type xtMark struct {
	plan   plan.Plan
	text   string                                         // of the plan; "" before the first
	chains map[plan.Family]map[string]map[string][]string // by table and chain
}

// note checks that what was loaded is what was wanted, and keeps it.
func (x *Backend) note(p plan.Plan, want map[plan.Family][]xtTable, live map[plan.Family]xtLive) error {
	m := xtMark{p, p.String(), map[plan.Family]map[string]map[string][]string{}}
	for _, f := range xtFamilies() {
		m.chains[f] = map[string]map[string][]string{}
		for _, t := range want[f] {
			m.chains[f][t.name] = map[string][]string{}
			for _, c := range t.chains {
				var got []string
				if l := live[f][t.name]; l != nil {
					got = l.rules[c.name]
				}
				if err := tells(c.rules, got); err != nil {
					return fmt.Errorf("IPv%d, table %s, chain %s: %w", f, t.name, c.name, err)
				}
				m.chains[f][t.name][c.name] = got
			}
		}
	}
	x.mark = m
	diffs, err := x.compare(want, live)
	if err != nil {
		return err
	}
	return plan.Differ(diffs)
}

// tells says whether the rules that were read are those that were given, as far
// as every version of iptables puts them alike.
func tells(given, read []string) error {
	if len(given) != len(read) {
		return fmt.Errorf("%d rules were loaded, and %d are there", len(given), len(read))
	}
	for i, g := range given {
		a, b := essence(g), essence(read[i])
		if strings.Contains(read[i], hiddenOwner) {
			a = slices.DeleteFunc(a, func(s string) bool {
				return strings.HasPrefix(s, "--uid-owner ") || strings.HasPrefix(s, "--gid-owner ")
			})
		}
		if !slices.Equal(a, b) {
			return fmt.Errorf("rule %d was loaded as %q, and is there as %q", i+1, g, read[i])
		}
	}
	return nil
}

// essence returns what a rule asks and does, in an order of its own.
func essence(rule string) []string {
	var out []string
	words := strings.Fields(rule)
	for i, w := range words {
		if i+1 == len(words) {
			break
		}
		value := words[i+1]
		switch w {
		case "-p":
			value = protoNumber(value)
		case "--ctorigdst":
			if a, err := netip.ParseAddr(value); err == nil {
				value = a.String()
			}
		case "-d", "-s": // of which there is more than one way to write it
			if p, err := netip.ParsePrefix(value); err == nil {
				value = p.String()
			}
		case "--match-set", "--add-set":
			value = strings.Join(words[i+1:min(i+3, len(words))], " ")
		case "-i", "-o", "-j", "--dport", "--sport", "--to-ports", "--uid-owner", "--gid-owner", "--ctstate", "--ctdir", "--ctorigdstport", "--src-type", "--tcp-flags",
			"--zone-orig", "--icmp-type", "--icmpv6-type", "--timeout", "--nflog-group", "--name", "--seconds":
		default:
			continue
		}
		if i > 0 && words[i-1] == "!" {
			w = "! " + w
		}
		out = append(out, w+" "+value)
	}
	slices.Sort(out)
	return out
}

// protoNumber returns the number of a protocol that iptables may name.
func protoNumber(name string) string {
	if n, ok := map[string]int{"icmp": plan.ProtoICMP, "igmp": plan.ProtoIGMP, "tcp": plan.ProtoTCP, "udp": plan.ProtoUDP, "ipv6-icmp": plan.ProtoICMPv6, "icmpv6": plan.ProtoICMPv6}[name]; ok {
		return fmt.Sprint(n)
	}
	return name
}

// Verify implements backend.
func (x *Backend) Verify(p plan.Plan) error {
	if x.mark.text != p.String() {
		return fmt.Errorf("verify: this plan was not loaded")
	}
	diffs, err := x.differences(context.Background(), p)
	if err != nil {
		return nfnetlink.Explain("verify", err)
	}
	return plan.Differ(diffs)
}

// differences compares the kernel with p, which was noted.
func (x *Backend) differences(ctx context.Context, p plan.Plan) ([]string, error) {
	want, err := x.render(p)
	if err != nil {
		return nil, err
	}
	live, err := x.read(ctx)
	if err != nil {
		return nil, err
	}
	out, err := x.compare(want, live)
	if err != nil {
		return nil, err
	}
	sets, err := x.setDifferences(p)
	return append(out, sets...), err
}

func (x *Backend) compare(want map[plan.Family][]xtTable, live map[plan.Family]xtLive) ([]string, error) {
	var out []string
	for _, f := range xtFamilies() {
		note := func(format string, args ...any) {
			out = append(out, fmt.Sprintf("IPv%d: ", f)+fmt.Sprintf(format, args...))
		}
		wanted := map[string]xtTable{}
		for _, t := range want[f] {
			wanted[t.name] = t
		}
		for _, name := range plan.SortedUnion(live[f], wanted) {
			t, l := wanted[name], live[f][name]
			switch {
			case l == nil:
				note("table %s is gone", name)
				continue
			case l.torn:
				note("table %s has rules that are none of iptables'", name)
				continue
			}
			for _, h := range t.hooks {
				if h.closed && l.policies[h.builtin] != "DROP" {
					note("chain %s has the policy %s, not DROP", h.builtin, l.policies[h.builtin])
				}
			}
			for _, line := range jumps(t, l) {
				note("the jumps to our chains are not in place: %q is needed in table %s", line, name)
			}
			mark := x.mark.chains[f][name]
			for _, c := range plan.SortedUnion(mark, chainsOf(l)) {
				switch got, noted := l.rules[c], mark[c]; {
				case got == nil:
					note("chain %s is gone", c)
				case noted == nil:
					note("chain %s is foreign", c)
				case !slices.Equal(got, noted):
					note("chain %s has other rules (%d, not %d; first difference at rule %d)", c, len(got), len(noted), plan.FirstDiff(got, noted)+1)
				}
			}
		}
	}
	return out, nil
}

func chainsOf(l *xtLiveTable) map[string]bool {
	out := map[string]bool{}
	for _, c := range l.ours() {
		out[c] = true
	}
	return out
}

func (x *Backend) setDifferences(p plan.Plan) ([]string, error) {
	var out []string
	note := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	wanted := map[string]ipsetPart{}
	for _, part := range partsOfAll(p) {
		wanted[part.name] = part
	}
	names, err := x.sets.names(xtPrefix)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, name := range names {
		there[name] = true
		if _, ok := wanted[name]; !ok {
			note("set %s is foreign", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		part := wanted[name]
		if !there[name] {
			note("set %s is gone", name)
			continue
		}
		live, err := x.sets.dump(name)
		switch {
		case err != nil: // an entry that none of ours can be
			note("set %s: %v", name, err)
		case live == nil:
			note("set %s is gone", name)
		case !live.is(part.ipset):
			note("set %s is defined otherwise: %s, revision %d, at most %d entries", name, live.typ, live.revision, live.max)
		case !part.filled() && !same(live, part):
			missing := 0
			for _, b := range part.boxes {
				if _, ok := live.entries[b]; !ok {
					missing++
				}
			}
			if extra := len(live.entries) - (len(part.boxes) - missing); missing > 0 && !part.of.Ending() || extra > 0 {
				note("set %s lacks %d elements and has %d foreign ones", name, missing, extra)
			}
		}
	}
	return out, nil
}
