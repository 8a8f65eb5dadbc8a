package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// docHead and docTail surround the figures in docs/benchmarks.md.
var (
	//go:embed head.md
	docHead string
	//go:embed tail.md
	docTail string
)

// report collects the figures, for a terminal and for the documentation.
type report struct{ groups []*group }

type group struct {
	title   string
	figures []*figure
}

// figure is one line: what was measured, its budget, and whether that is kept.
type figure struct {
	name, value, goal, verdict, notes string
}

func (r *report) heading(format string, args ...any) {
	r.groups = append(r.groups, &group{title: fmt.Sprintf(format, args...)})
}

func (r *report) figure(name, value, goal string) *figure {
	g := r.groups[len(r.groups)-1]
	f := &figure{name: name, value: value, goal: goal}
	g.figures = append(g.figures, f)
	return f
}

// met says whether the budget is kept.
func (f *figure) met(ok bool) *figure {
	f.verdict = "BROKEN"
	if ok {
		f.verdict = "met"
	}
	return f
}

func (f *figure) note(format string, args ...any) *figure {
	f.notes = fmt.Sprintf(format, args...)
	return f
}

// broken says whether any budget is.
func (r *report) broken() bool {
	return slices.ContainsFunc(r.groups, func(g *group) bool {
		return slices.ContainsFunc(g.figures, func(f *figure) bool { return f.verdict == "BROKEN" })
	})
}

func (f *figure) cells() []string { return []string{f.name, f.value, f.goal, f.verdict, f.notes} }

func (r *report) text() string {
	var w strings.Builder
	var width [4]int
	for _, g := range r.groups {
		for _, f := range g.figures {
			for i := range width {
				width[i] = max(width[i], utf8.RuneCountInString(f.cells()[i]))
			}
		}
	}
	for _, g := range r.groups {
		if len(g.figures) == 0 {
			continue
		}
		fmt.Fprintf(&w, "\n%s\n", g.title)
		for _, f := range g.figures {
			c := f.cells()
			for i := range width {
				c[i] += strings.Repeat(" ", width[i]-utf8.RuneCountInString(c[i]))
			}
			w.WriteString(strings.TrimRight("  "+strings.Join(c, "  "), " ") + "\n")
		}
	}
	return w.String()
}

const (
	figureHead = "| budget of | measured | budget | verdict | details, and who is compared |\n|---|---:|---|---|---|\n"
	runsTitle  = "Where and when"
	runsHead   = "| rows | machine | software | load | date |\n|---|---|---|---|---|\n"
)

func (f *figure) markdown() string {
	c := f.cells()
	if f.verdict == "BROKEN" {
		c[3] = "**broken**"
	}
	return "| " + strings.Join(c, " | ") + " |\n"
}

// save puts the figures into a page that was made so before. What was not measured now stays as it was.
func (r *report) save(file string, on machine) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	page, err := r.page(string(data), on)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(page), 0o644)
}

// rowName is what -only calls a row, which is where its line begins.
var rowName = regexp.MustCompile("`([a-z0-9-]+)`")

// page is the old one with the figures of this run. The texts around them are as they are now.
func (r *report) page(old string, on machine) (string, error) {
	sections := strings.Split(old, "\n## ")
	section := func(title string) string {
		for _, s := range sections {
			if strings.HasPrefix(s, title) {
				return s
			}
		}
		return ""
	}
	lines := map[string]string{}
	for line := range strings.Lines(section("Budgets")) {
		if m := rowName.FindStringSubmatch(line); m != nil && strings.HasPrefix(line, "| `") {
			lines[m[1]] = line
		}
	}
	if len(lines) == 0 {
		return "", errors.New("this is no page of figures")
	}
	var measured []string
	for _, f := range r.groups[0].figures {
		name := rowName.FindStringSubmatch(f.name)[1]
		lines[name], measured = f.markdown(), append(measured, name)
	}
	w := docHead + "\n## Budgets\n\n" + figureHead
	for _, row := range rows() {
		w += lines[row.name]
	}
	if len(r.groups) > 1 { // what ends a flow has a table of its own
		g := r.groups[1]
		w += "\n## " + g.title + "\n\n" + figureHead
		for _, f := range g.figures {
			w += f.markdown()
		}
		measured = append(measured, "revoke")
	} else {
		w += "\n## " + strings.TrimRight(section("A denial"), "\n") + "\n"
	}
	w += "\n## " + runsTitle + "\n\n" + runsHead
	for line := range strings.Lines(section(runsTitle)) {
		cells := strings.SplitN(line, " | ", 2)
		if len(cells) < 2 || !strings.HasPrefix(line, "| `") {
			continue
		}
		var left []string
		for _, m := range rowName.FindAllStringSubmatch(cells[0], -1) {
			if !slices.Contains(measured, m[1]) {
				left = append(left, m[1])
			}
		}
		w += runLine(left, cells[1])
	}
	w += runLine(measured, strings.Join([]string{on.processors, on.software, on.load, on.date}, " | ")+" |\n")
	return w + docTail, nil
}

func runLine(rows []string, rest string) string {
	if len(rows) == 0 {
		return ""
	}
	return "| `" + strings.Join(rows, "`, `") + "` | " + rest
}
