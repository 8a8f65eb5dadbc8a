package firewall

import (
	"fmt"
	"slices"
	"strings"
)

// xtPrefix begins the name of each chain and each ipset of ours.
const xtPrefix = tableName + "-"

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

// jump is the rule by which packets come to a chain of ours.
func (h xtHook) jump() string { return "-j " + h.chain }

// xtTables renders p for one family. Tables that drop by default come first, and
// tables where p wants nothing are left out.
func xtTables(p Plan, f family, uids []uidRange) ([]xtTable, error) {
	byName := map[string]chain{}
	for _, c := range p.chains {
		byName[c.name] = c
	}
	var out []xtTable
	for _, name := range []string{"filter", "raw", "mangle", "nat"} {
		t := xtTable{name: name}
		r := &xtRenderer{family: f, uids: uids, sets: setsOf(p), table: &t}
		done := map[string]bool{}
		for _, c := range p.chains {
			if c.hook == "" || xtTableOf(c) != name {
				continue
			}
			if !c.nat && c.priority != 0 && c.priority != beforeTracking || c.nat && c.priority > -100 {
				return nil, fmt.Errorf("chain %s: iptables has no priority %d: %w", c.name, c.priority, ErrUnsupported)
			}
			t.hooks = append(t.hooks, xtHook{strings.ToUpper(c.hook), xtPrefix + c.name, c.closed})
			if err := r.chain(c, byName, done); err != nil {
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
func xtTableOf(c chain) string {
	switch {
	case c.nat:
		return "nat"
	case c.hook == "prerouting", c.priority == beforeTracking:
		return "raw"
	case c.hook == "postrouting":
		return "mangle"
	}
	return "filter"
}

// xtRenderer writes the chains of one table and family.
type xtRenderer struct {
	family family
	uids   []uidRange
	sets   map[string]set
	table  *xtTable
}

// chain adds c, behind the chains that it jumps to.
func (r *xtRenderer) chain(c chain, all map[string]chain, done map[string]bool) error {
	if done[c.name] {
		return nil
	}
	done[c.name] = true
	for _, ru := range c.rules {
		if j, ok := ru.verdict.(jump); ok {
			to, ok := all[j.chain]
			if !ok {
				return fmt.Errorf("chain %s: there is no chain %s", c.name, j.chain)
			}
			if err := r.chain(to, all, done); err != nil {
				return err
			}
		}
	}
	x := xtChain{name: xtPrefix + c.name}
	for _, ru := range c.rules {
		lines, err := r.rule(&x, ru)
		if err != nil {
			return fmt.Errorf("chain %s: %s: %w", c.name, ru, err)
		}
		x.rules = append(x.rules, lines...)
	}
	if c.closed {
		x.rules = append(x.rules, "-j DROP")
	}
	r.table.chains = append(r.table.chains, x)
	return nil
}

// xtDraft is a rule in the making.
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
func (r *xtRenderer) rule(c *xtChain, ru rule) ([]string, error) {
	if _, ok := ru.verdict.(alarm); ok { // see matchCalm
		return nil, nil
	}
	drafts := []xtDraft{{}}
	for _, m := range ru.matches {
		var next []xtDraft
		for _, d := range drafts {
			ds, err := r.match(d, m, ru.verdict)
			if err != nil {
				return nil, err
			}
			next = append(next, ds...)
		}
		drafts = next
	}
	var out []string
	for _, d := range drafts {
		line, err := r.line(c, d, ru.verdict)
		if err != nil {
			return nil, err
		}
		if line != "" {
			out = append(out, line)
		}
	}
	if _, ok := ru.verdict.(keep); ok { // whose target goes on to the next rule
		more, err := r.rule(c, rule{ru.matches, accept{}})
		return append(out, more...), err
	}
	return out, nil
}

// line finishes a rule. iptables takes one protocol for each: where several are
// excluded, a chain of its own returns for each of them.
func (r *xtRenderer) line(c *xtChain, d xtDraft, v verdict) (string, error) {
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

// xtProto returns how iptables is told a protocol: by the names that it knows
// without /etc/protocols, else by number.
func xtProto(p uint8) string {
	switch p {
	case protoTCP, protoUDP, protoICMP, protoICMPv6:
		return protoName(p)
	}
	return fmt.Sprint(p)
}
