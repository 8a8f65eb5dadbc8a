package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// report collects the figures, for a terminal and for the documentation.
type report struct {
	began   time.Time
	machine []string
	groups  []*group
}

type group struct {
	title   string
	figures []*figure
}

// figure is one line: what was measured, and what was aimed at.
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

// met says whether the goal was reached.
func (f *figure) met(ok bool) *figure {
	f.verdict = "MISSED"
	if ok {
		f.verdict = "met"
	}
	return f
}

func (f *figure) note(format string, args ...any) *figure {
	f.notes = fmt.Sprintf(format, args...)
	return f
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
		fmt.Fprintf(&w, "\n%s\n", g.title)
		for _, f := range g.figures {
			c := f.cells()
			line := fmt.Sprintf("  %s  %s  %s  %s  %s", pad(c[0], width[0]), padLeft(c[1], width[1]), pad(c[2], width[2]), pad(c[3], width[3]), c[4])
			w.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
	w.WriteString("\n" + strings.Join(r.machine, "\n") + "\n")
	return w.String()
}

func (r *report) markdown() string {
	var w strings.Builder
	w.WriteString(docHead)
	for _, g := range r.groups {
		fmt.Fprintf(&w, "\n## %s\n\n| figure | measured | goal | verdict | range or details |\n|---|---:|---|---|---|\n", g.title)
		for _, f := range g.figures {
			c := f.cells()
			if f.verdict == "MISSED" {
				c[3] = "**missed**"
			}
			fmt.Fprintf(&w, "| %s |\n", strings.Join(c, " | "))
		}
	}
	w.WriteString("\n## The machine\n\n")
	for _, line := range r.machine {
		w.WriteString("- " + line + "\n")
	}
	w.WriteString(docTail)
	return w.String()
}

func pad(s string, n int) string     { return s + strings.Repeat(" ", n-utf8.RuneCountInString(s)) }
func padLeft(s string, n int) string { return strings.Repeat(" ", n-utf8.RuneCountInString(s)) + s }
