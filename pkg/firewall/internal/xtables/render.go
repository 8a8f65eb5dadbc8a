package xtables

import (
	"cmp"
	"fmt"
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

// xtChain is a chain of ours, with its rules as iptables-restore(8) takes them
// behind "-A chain".
type xtChain struct {
	name  string
	rules []string
}

func (h xtHook) jump() string { return "-j " + h.chain }

// xtTables renders p for one family. Tables that drop by default come first, and
// tables where p wants nothing are left out.
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
			t.hooks = append(t.hooks, xtHook{strings.ToUpper(c.Hook), xtPrefix + c.Name, c.Closed})
			if err := r.chain(c); err != nil {
				return nil, err
			}
		}
		if len(t.hooks) > 0 {
			out = append(out, t)
		}
	}
	return out, nil
}

// xtTableOf returns the table that has the hook of c. Only mangle and nat see a
// packet after it was routed for the last time.
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

// chain adds c, behind the chains that it jumps to.
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

// rule returns the rules that together do what ru does, in one family: none, if
// no packet of the family can match; several, where one of iptables can't say
// "or".
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
