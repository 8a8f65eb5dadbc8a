package scorecard

import (
	"fmt"
	"strings"
)

// Column is what became of the attacks in one kind of place. Several settings
// may share a column: the worst of them is shown.
type Column struct {
	Title   string
	Results [][]Result // of each setting
	Ours    bool       // agent-init confines what is there
	Works   bool       // what is allowed could be reached, in each setting
	Subject *Subject   // where it is somebody's image
}

// cell is the worst that became of attack i.
func (c Column) cell(i int) (worst Result) {
	for _, results := range c.Results {
		if r := results[i]; r.Outcome >= worst.Outcome {
			worst = r
		}
	}
	return worst
}

// Count says how many attacks had an outcome.
func (c Column) Count(o Outcome) (n int) {
	for i := range Attacks() {
		if c.cell(i).Outcome == o {
			n++
		}
	}
	return n
}

// Table is the scorecard in Markdown, with or without the tests that try more of
// each attack.
func Table(columns []Column, tests bool) string { return TableOf("", columns, tests) }

// TableOf is Table of some series, which are named by their letters; "" is all.
func TableOf(series string, columns []Column, tests bool) string {
	var out strings.Builder
	row := func(cells ...string) { fmt.Fprintf(&out, "| %s |\n", strings.Join(cells, " | ")) }
	head, line := []string{"", "attack"}, []string{"---", "---"}
	for _, c := range columns {
		head, line = append(head, c.Title), append(line, "---")
	}
	if tests {
		head, line = append(head, "more of it in"), append(line, "---")
	}
	row(head...)
	row(line...)
	for i, a := range Attacks() {
		if series != "" && !strings.Contains(series, a.ID[:1]) {
			continue
		}
		cells := []string{a.ID, a.Title}
		for _, c := range columns {
			cells = append(cells, c.cell(i).String())
		}
		if tests {
			cells = append(cells, quoted(a.Tests))
		}
		row(cells...)
	}
	if series != "" {
		return out.String()
	}
	foot := []string{"", "leaks"}
	for _, c := range columns {
		foot = append(foot, fmt.Sprintf("%d of %d", c.Count(Leaked), len(Attacks())-c.Count(Untried)))
	}
	if tests {
		foot = append(foot, "")
	}
	row(foot...)
	return out.String()
}

// quoted lists names as code.
func quoted(names []string) string {
	var list []string
	for _, n := range names {
		list = append(list, "`"+n+"`")
	}
	return strings.Join(list, ", ")
}

// Advice lists what is open by its nature, and what to do about it.
func Advice() string {
	var out strings.Builder
	for _, a := range Attacks() {
		if a.Limit != "" {
			fmt.Fprintf(&out, "- **%s**, %s.%s\n", a.ID, a.Title, lines(a.Limit))
		}
		if a.Elsewhere != "" {
			fmt.Fprintf(&out, "- **%s**, %s, in `up` and `sidecar` mode.%s\n", a.ID, a.Title, lines(a.Elsewhere))
		}
	}
	return out.String()
}

// lines gives each sentence a line of a list's.
func lines(text string) string {
	return strings.ReplaceAll(" "+text, ". ", ".\n  ")
}

// Rest lists the attacks of the catalogue that are no line of the table, and why.
func Rest() string {
	var out strings.Builder
	for _, o := range Elsewhere() {
		fmt.Fprintf(&out, "- **%s**:%s\n", strings.Join(o.IDs, ", "), lines(o.Why))
	}
	return out.String()
}

// Leaks lists what arrived, for each attack that leaked.
func Leaks(c Column) string {
	var out strings.Builder
	for i, a := range Attacks() {
		if r := c.cell(i); r.Outcome == Leaked {
			fmt.Fprintf(&out, "%s  %s: %s\n", a.ID, a.Title, strings.Join(r.Leaks, "; "))
		}
	}
	return out.String()
}
