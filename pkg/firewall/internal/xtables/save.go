package xtables

import (
	"fmt"
	"slices"
	"strings"
)

// xtLive are the tables of one family as iptables-save(8) tells them.
type xtLive map[string]*xtLiveTable

// chain returns the rules of a chain, none if there is no such chain or table.
func (l xtLive) chain(table, name string) []string {
	if t := l[table]; t != nil {
		return t.rules[name]
	}
	return nil
}

type xtLiveTable struct {
	policies map[string]string   // of built-in chains
	rules    map[string][]string // of every chain, without "-A chain"
	torn     bool                // it holds what iptables can't tell
}

// parseSave parses the output of iptables-save(8).
func parseSave(text string) (xtLive, error) {
	live := xtLive{}
	var t *xtLiveTable
	table := func(name string) *xtLiveTable {
		if live[name] == nil {
			live[name] = &xtLiveTable{policies: map[string]string{}, rules: map[string][]string{}}
		}
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
	var out []string
	for name := range t.rules {
		if strings.HasPrefix(name, xtPrefix) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
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
