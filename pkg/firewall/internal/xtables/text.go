package xtables

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// restoreText returns what brings tables from live to want: one transaction for
// each, in the order of want, then those where only old chains of ours are left.
// Rules of others stay, behind ours. live is nil for tables that nobody has used.
func restoreText(want []xtTable, live xtLive) string {
	var b strings.Builder
	done := map[string]bool{}
	for _, t := range want {
		done[t.name] = true
		writeTable(&b, t, live[t.name])
	}
	for _, name := range slices.Sorted(maps.Keys(live)) {
		if l := live[name]; !done[name] && len(l.ours()) > 0 {
			writeTable(&b, xtTable{name: name}, l)
		}
	}
	return b.String()
}

func writeTable(b *strings.Builder, t xtTable, live *xtLiveTable) {
	fmt.Fprintf(b, "*%s\n", t.name)
	for _, h := range t.hooks {
		if h.closed {
			fmt.Fprintf(b, ":%s DROP [0:0]\n", h.builtin)
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
				if !strings.HasPrefix(targetOf(r), xtPrefix) {
					continue
				}
				if i == 0 && slices.ContainsFunc(t.hooks, func(h xtHook) bool { return h.builtin == name && h.jump() == r }) {
					placed[name] = true
					continue
				}
				out = append(out, fmt.Sprintf("-D %s %d", name, i+1))
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

// removeText returns what takes away all that is ours in live, and the policies
// that came with it. It is for when other rules hold everything already.
func removeText(live xtLive) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(live)) {
		l := live[name]
		old := l.ours()
		if len(old) == 0 {
			continue
		}
		fmt.Fprintf(&b, "*%s\n", name)
		for _, line := range jumps(xtTable{}, l) {
			fmt.Fprintln(&b, line)
		}
		for _, c := range slices.Sorted(maps.Keys(l.policies)) {
			if name == "filter" && l.policies[c] == "DROP" {
				fmt.Fprintf(&b, ":%s ACCEPT [0:0]\n", c)
			}
		}
		for _, c := range old {
			fmt.Fprintf(&b, "-F %s\n", c)
		}
		for _, c := range old {
			fmt.Fprintf(&b, "-X %s\n", c)
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}
