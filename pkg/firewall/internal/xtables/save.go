package xtables

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// xtLive are the tables of one family as iptables-save(8) tells them.
type xtLive map[string]*xtLiveTable

// table returns a table, empty if there is none.
func (l xtLive) table(name string) *xtLiveTable { return cmp.Or(l[name], &xtLiveTable{}) }

type xtLiveTable struct {
	policies map[string]string   // of built-in chains
	rules    map[string][]string // of every chain, without "-A chain"
	torn     bool                // it holds what iptables can't tell
}

func parseSave(text string) (xtLive, error) {
	live := xtLive{}
	var t *xtLiveTable
	table := func(name string) *xtLiveTable {
		live[name] = cmp.Or(live[name], &xtLiveTable{policies: map[string]string{}, rules: map[string][]string{}})
		return live[name]
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		fields := strings.Fields(line)
		switch {
		case line == "", line == "COMMIT":
		case line[0] == '#':
			// "# Table `filter' is incompatible, use 'nft' tool."
			if len(fields) > 4 && fields[1] == "Table" && strings.Contains(line, "incompatible") {
				table(strings.Trim(fields[2], "`'\"")).torn = true
			}
		case line[0] == '*':
			t = table(line[1:])
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

// ours returns the names of our chains in t, sorted.
func (t *xtLiveTable) ours() []string {
	if t == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t.rules)), func(name string) bool { return !strings.HasPrefix(name, xtPrefix) })
}

// targetOf returns the chain or target that a rule goes to.
func targetOf(rule string) string {
	words := strings.Fields(rule)
	for i, w := range words[:max(len(words)-1, 0)] {
		if w == "-j" || w == "-g" || w == "--jump" || w == "--goto" {
			return words[i+1]
		}
	}
	return ""
}

// restoreText returns what brings the live tables to those that are wanted: one transaction for
// each, in their order, then those where only old chains of ours are left.
// Rules of others stay, behind ours. live is nil for tables that nobody has used.
// open takes the policies back that drop: for when other rules hold everything already.
func restoreText(tables []xtTable, live xtLive, open bool) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(live)) {
		if len(live[name].ours()) > 0 && !slices.ContainsFunc(tables, func(t xtTable) bool { return t.name == name }) {
			tables = append(slices.Clip(tables), xtTable{name: name})
		}
	}
	for _, t := range tables {
		writeTable(&b, t, live[t.name], open)
	}
	return b.String()
}

func writeTable(b *strings.Builder, t xtTable, live *xtLiveTable, open bool) {
	fmt.Fprintf(b, "*%s\n", t.name)
	for _, h := range t.hooks {
		if h.closed {
			fmt.Fprintf(b, ":%s DROP [0:0]\n", h.builtin)
		}
	}
	if open && t.name == "filter" {
		for _, c := range slices.Sorted(maps.Keys(live.policies)) {
			if live.policies[c] == "DROP" {
				fmt.Fprintf(b, ":%s ACCEPT [0:0]\n", c)
			}
		}
	}
	ours := map[string]bool{}
	for _, c := range t.chains { // which empties those that are there
		fmt.Fprintf(b, ":%s - [0:0]\n", c.name)
		ours[c.name] = true
	}
	old := slices.DeleteFunc(live.ours(), func(name string) bool { return ours[name] })
	for _, name := range old {
		fmt.Fprintf(b, "-F %s\n", name)
	}
	for _, line := range jumps(t, live) {
		fmt.Fprintln(b, line)
	}
	for _, c := range t.chains {
		for _, r := range c.rules {
			fmt.Fprintf(b, "-A %s %s\n", c.name, r)
		}
	}
	for _, name := range old {
		fmt.Fprintf(b, "-X %s\n", name)
	}
	b.WriteString("COMMIT\n")
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
