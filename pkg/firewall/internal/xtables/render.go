package xtables

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// xtPrefix begins the name of each chain and each ipset of ours.
const xtPrefix = plan.TableName + "-"

// xtTable is what a plan wants of one table of iptables(8), for one family.
type xtTable struct {
	name   string
	hooks  []xtHook
	chains []xtChain
}

// xtHook is a built-in chain, whose first rule is a jump to ours.
type xtHook struct {
	builtin string // OUTPUT
	chain   string // agent-init-output
	closed  bool   // by its policy too
}

// xtChain is a chain of ours, with its rules as iptables-restore(8) takes them behind "-A chain".
type xtChain struct {
	name  string
	rules []string
}

func (h xtHook) jump() string { return "-j " + h.chain }

// xtTables renders p for one family. Those that drop by default come first; empty ones are left out.
func xtTables(p plan.Plan, f plan.Family, uids []uidRange) ([]xtTable, error) {
	var out []xtTable
	for _, name := range []string{"filter", "raw", "mangle", "nat"} {
		t := xtTable{name: name}
		r := &xtRenderer{family: f, uids: uids, plan: p, table: &t}
		for _, c := range p.Chains {
			if c.Hook == "" || xtTableOf(c) != name {
				continue
			}
			if !c.Nat && c.Priority != 0 && !c.Raw() || c.Nat && c.Priority > -100 {
				return nil, fmt.Errorf("chain %s: iptables has no priority %d: %w", c.Name, c.Priority, nfnetlink.ErrUnsupported)
			}
			if err := r.chain(c); err != nil {
				return nil, err
			}
			h := xtHook{strings.ToUpper(c.Hook), xtPrefix + c.Name, c.Closed}
			if !t.follows(h) {
				t.hooks = append(t.hooks, h)
			}
		}
		if len(t.hooks) > 0 {
			out = append(out, t)
		}
	}
	return out, nil
}

// follows puts the chain of h behind that which has its hook already, if there is one: a built-in chain leads to one of
// ours. That one ends in no verdict, and returns early from nothing.
func (t *xtTable) follows(h xtHook) bool {
	i := slices.IndexFunc(t.hooks, func(old xtHook) bool { return old.builtin == h.builtin })
	if i < 0 {
		return false
	}
	for j := range t.chains {
		if c := &t.chains[j]; c.name == t.hooks[i].chain {
			c.rules = append(c.rules, h.jump())
		}
	}
	return true
}

// xtTableOf returns the table that has the hook of c. Only mangle and nat see a packet after the last routing.
func xtTableOf(c plan.Chain) string {
	switch {
	case c.Nat:
		return "nat"
	case c.Hook == "prerouting", c.Raw():
		return "raw"
	case c.Hook == "postrouting":
		return "mangle"
	}
	return "filter"
}

type xtRenderer struct {
	family plan.Family
	uids   []uidRange
	plan   plan.Plan
	table  *xtTable
}

func (r *xtRenderer) chain(c plan.Chain) error {
	if slices.ContainsFunc(r.table.chains, func(x xtChain) bool { return x.name == xtPrefix+c.Name }) {
		return nil
	}
	for _, ru := range c.Rules {
		if ru.Verdict.Do != "jump" {
			continue
		}
		i := slices.IndexFunc(r.plan.Chains, func(to plan.Chain) bool { return to.Name == ru.Verdict.To })
		if i < 0 {
			return fmt.Errorf("chain %s: there is no chain %s", c.Name, ru.Verdict.To)
		}
		if err := r.chain(r.plan.Chains[i]); err != nil {
			return err
		}
	}
	x := xtChain{name: xtPrefix + c.Name}
	for _, ru := range c.Rules {
		lines, err := r.rule(&x, ru)
		if err != nil {
			return fmt.Errorf("chain %s: %s: %w", c.Name, ru, err)
		}
		x.rules = append(x.rules, lines...)
	}
	if c.Closed {
		x.rules = append(x.rules, "-j DROP")
	}
	r.table.chains = append(r.table.chains, x)
	return nil
}

type xtDraft struct {
	proto     uint8 // 0: not asked
	notProtos []uint8
	words     []string
}

func (d xtDraft) with(words ...string) xtDraft {
	d.words = append(slices.Clone(d.words), words...)
	return d
}

// rule returns the rules that together do what ru does: none, if no packet of the
// family can match; several, where one of iptables can't say "or".
func (r *xtRenderer) rule(c *xtChain, ru plan.Rule) ([]string, error) {
	if ru.Verdict.Do == "update" && ru.Verdict.Text == "th dport" { // an alarm, which nothing asks for: see matchSet
		return nil, nil
	}
	drafts := []xtDraft{{}}
	for _, m := range ru.Matches {
		var next []xtDraft
		for _, d := range drafts {
			ds, err := r.match(d, m, ru.Verdict)
			if err != nil {
				return nil, err
			}
			next = append(next, ds...)
		}
		drafts = next
	}
	var out []string
	for _, d := range drafts {
		line, err := r.line(c, d, ru.Verdict)
		if err != nil {
			return nil, err
		}
		if line != "" {
			out = append(out, line)
		}
	}
	if ru.Verdict.Do == "keep" { // whose target goes on to the next rule
		more, err := r.rule(c, plan.Rule{Matches: ru.Matches, Verdict: plan.Verdict{Do: "accept"}})
		return append(out, more...), err
	}
	return out, nil
}

// line finishes a rule. iptables takes one protocol for each: where several are
// excluded, a chain of its own returns for each of them.
func (r *xtRenderer) line(c *xtChain, d xtDraft, v plan.Verdict) (string, error) {
	tail, err := r.verdict(d, v)
	if err != nil {
		return "", err
	}
	words := append(slices.Clone(d.words), tail...)
	switch {
	case d.proto != 0 && slices.Contains(d.notProtos, d.proto):
		return "", nil
	case d.proto != 0:
		words = append([]string{"-p", xtProto(d.proto)}, words...)
	case len(d.notProtos) == 1:
		words = append([]string{"!", "-p", xtProto(d.notProtos[0])}, words...)
	case len(d.notProtos) > 1:
		side := xtChain{name: fmt.Sprintf("%s-%d", c.name, len(c.rules)+1)}
		for _, p := range d.notProtos {
			side.rules = append(side.rules, "-p "+xtProto(p)+" -j RETURN")
		}
		side.rules = append(side.rules, strings.Join(words, " "))
		r.table.chains = append(r.table.chains, side)
		words = []string{"-j", side.name}
	}
	return strings.Join(words, " "), nil
}

func xtProto(p uint8) string { return cmp.Or(protocols[p], fmt.Sprint(p)) }

// xtLive are the tables of one family as iptables-save(8) tells them.
type xtLive map[string]*xtLiveTable

func (l xtLive) table(name string) *xtLiveTable { return cmp.Or(l[name], &xtLiveTable{}) }

type xtLiveTable struct {
	policies map[string]string   // of built-in chains
	rules    map[string][]string // of every chain, without "-A chain"
}

func parseSave(text string) (xtLive, error) {
	live := xtLive{}
	var t *xtLiveTable
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		fields := strings.Fields(line)
		switch {
		case line == "", line == "COMMIT", line[0] == '#':
		case line[0] == '*':
			t = cmp.Or(live[line[1:]], &xtLiveTable{policies: map[string]string{}, rules: map[string][]string{}})
			live[line[1:]] = t
		case t == nil:
			return nil, fmt.Errorf("%q belongs to no table", line)
		case line[0] == ':' && len(fields) >= 2:
			name := fields[0][1:]
			if fields[1] != "-" {
				t.policies[name] = fields[1]
			}
			if t.rules[name] == nil {
				t.rules[name] = []string{}
			}
		case len(fields) >= 2 && fields[0] == "-A":
			t.rules[fields[1]] = append(t.rules[fields[1]], strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(line, "-A "), fields[1])))
		default:
			return nil, fmt.Errorf("%q is no line of iptables-save", line)
		}
	}
	return live, nil
}

func (t *xtLiveTable) ours() []string {
	if t == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t.rules)), func(name string) bool { return !strings.HasPrefix(name, xtPrefix) })
}

func targetOf(rule string) string {
	words := strings.Fields(rule)
	for i, w := range words[:max(len(words)-1, 0)] {
		if w == "-j" || w == "-g" || w == "--jump" || w == "--goto" {
			return words[i+1]
		}
	}
	return ""
}

// restoreText returns what brings the live tables to those that are wanted: one transaction for each, in their order,
// then those where only old chains of ours are left. Rules of others stay, behind ours. live is nil for tables that
// nobody has used. open takes the policies back that drop: for when other rules hold everything already.
func restoreText(tables []xtTable, live xtLive, open bool) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(live)) {
		if len(live[name].ours()) > 0 && !slices.ContainsFunc(tables, func(t xtTable) bool { return t.name == name }) {
			tables = append(slices.Clip(tables), xtTable{name: name})
		}
	}
	for _, t := range tables {
		now := live[t.name]
		fmt.Fprintf(&b, "*%s\n", t.name)
		for _, h := range t.hooks {
			if h.closed {
				fmt.Fprintf(&b, ":%s DROP [0:0]\n", h.builtin)
			}
		}
		if open && t.name == "filter" {
			for _, c := range slices.Sorted(maps.Keys(now.policies)) {
				if now.policies[c] == "DROP" {
					fmt.Fprintf(&b, ":%s ACCEPT [0:0]\n", c)
				}
			}
		}
		ours := map[string]bool{}
		for _, c := range t.chains { // which empties those that are there
			fmt.Fprintf(&b, ":%s - [0:0]\n", c.name)
			ours[c.name] = true
		}
		old := slices.DeleteFunc(now.ours(), func(name string) bool { return ours[name] })
		for _, name := range old {
			fmt.Fprintf(&b, "-F %s\n", name)
		}
		for _, line := range jumps(t, now) {
			fmt.Fprintln(&b, line)
		}
		for _, c := range t.chains {
			for _, r := range c.rules {
				fmt.Fprintf(&b, "-A %s %s\n", c.name, r)
			}
		}
		for _, name := range old {
			fmt.Fprintf(&b, "-X %s\n", name)
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// jumps returns the commands that make the jumps of t's hooks the first rules of
// their chains, and the only way to ours from those of others.
func jumps(t xtTable, live *xtLiveTable) []string {
	var out []string
	placed := map[string]bool{}
	if live != nil {
		for _, name := range slices.Sorted(maps.Keys(live.rules)) {
			if strings.HasPrefix(name, xtPrefix) {
				continue
			}
			for i, r := range slices.Backward(live.rules[name]) { // numbers before it stay what they are
				switch {
				case !strings.HasPrefix(targetOf(r), xtPrefix):
				case i == 0 && slices.ContainsFunc(t.hooks, func(h xtHook) bool { return h.builtin == name && h.jump() == r }):
					placed[name] = true
				default:
					out = append(out, fmt.Sprintf("-D %s %d", name, i+1))
				}
			}
		}
	}
	for _, h := range t.hooks {
		if !placed[h.builtin] {
			out = append(out, fmt.Sprintf("-I %s 1 %s", h.builtin, h.jump()))
		}
	}
	return out
}
