package xtables

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// xtMark is what iptables said of our chains right after it had loaded a plan. How it puts a rule depends on its
// version, so what it says later is compared with that, word for word; and that is compared with the plan, once.
type xtMark struct {
	plan   plan.Plan
	text   string                                         // of the plan; "" before the first
	chains map[plan.Family]map[string]map[string][]string // by table and chain
}

// note checks that what was loaded is what was wanted, and keeps it.
func (x *Backend) note(p plan.Plan, want map[plan.Family][]xtTable, live map[plan.Family]xtLive) error {
	chains, err := byFamily(func(f plan.Family) (map[string]map[string][]string, error) { return asLoaded(want[f], live[f]) })
	if err != nil {
		return err
	}
	x.mark = xtMark{p, p.String(), chains}
	return x.compare(want, live).Err()
}

// asLoaded returns how the chains of tables are put, which have just been loaded.
func asLoaded(tables []xtTable, live xtLive) (map[string]map[string][]string, error) {
	out := map[string]map[string][]string{}
	for _, t := range tables {
		out[t.name] = map[string][]string{}
		for _, c := range t.chains {
			got := live.table(t.name).rules[c.name]
			if err := tells(c.rules, got); err != nil {
				return nil, fmt.Errorf("table %s, chain %s: %w", t.name, c.name, err)
			}
			out[t.name][c.name] = got
		}
	}
	return out, nil
}

// tells says whether the rules that were read are those given, as far as all versions of iptables agree.
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

// protoNumbers are of the protocols that iptables may name.
var protoNumbers = map[string]string{"icmp": "1", "igmp": "2", "tcp": "6", "udp": "17", "ipv6-icmp": "58", "icmpv6": "58"}

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
			value = cmp.Or(protoNumbers[value], value)
		case "--ctorigdst":
			if a, err := netip.ParseAddr(value); err == nil {
				value = a.String()
			}
		case "--mark": // in hexadecimal, as it is read
			if n, err := strconv.ParseUint(value, 0, 32); err == nil {
				value = strconv.FormatUint(n, 10)
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

func (x *Backend) Verify(p plan.Plan) error {
	if x.mark.text != p.String() {
		return fmt.Errorf("verify: this plan was not loaded")
	}
	diffs, err := x.differences(p)
	if err != nil {
		return nfnetlink.Explain("verify", err)
	}
	return diffs.Err()
}

func (x *Backend) differences(p plan.Plan) (plan.Diff, error) {
	want, err := x.render(p)
	if err != nil {
		return nil, err
	}
	live, err := x.read()
	if err != nil {
		return nil, err
	}
	out := x.compare(want, live)
	if p.Reduced { // it has no sets
		return out, nil
	}
	return out, compareSets(&out, p)
}

func (x *Backend) compare(want map[plan.Family][]xtTable, live map[plan.Family]xtLive) (out plan.Diff) {
	for _, f := range xtFamilies() {
		where := fmt.Sprintf("IPv%d: ", f)
		wanted := map[string]xtTable{}
		for _, t := range want[f] {
			wanted[t.name] = t
			if live[f][t.name] == nil {
				out.Note("%stable %s is gone", where, t.name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(live[f])) {
			t, l := wanted[name], live[f][name]
			for _, h := range t.hooks {
				if h.closed && l.policies[h.builtin] != "DROP" {
					out.Note("%schain %s has the policy %s, not DROP", where, h.builtin, l.policies[h.builtin])
				}
			}
			for _, line := range jumps(t, l) {
				out.Note("%sthe jumps to our chains are not in place: %q is needed in table %s", where, line, name)
			}
			got := map[string][]string{}
			for _, c := range l.ours() {
				got[c] = l.rules[c]
			}
			out.Chains(where, got, x.mark.chains[f][name])
		}
	}
	return out
}

func compareSets(out *plan.Diff, p plan.Plan) error {
	wanted := map[string]ipsetPart{}
	for _, part := range partsOfAll(p) {
		wanted[part.name] = part
	}
	names, err := setNames(xtPrefix)
	if err != nil {
		return err
	}
	for _, name := range out.Names("set", slices.Values(names), maps.Keys(wanted)) {
		part := wanted[name]
		live, err := dumpSet(name)
		switch {
		case err != nil: // an entry that none of ours can be
			out.Note("set %s: %v", name, err)
		case live == nil:
			out.Note("set %s is gone", name)
		case !live.is(part.ipset):
			out.Note("set %s is defined otherwise: %s, revision %d, at most %d entries", name, live.typ, live.revision, live.max)
		case !part.filled():
			missing, extra := live.differs(part)
			out.Elements(name, part.of, missing, extra)
		}
	}
	return nil
}
