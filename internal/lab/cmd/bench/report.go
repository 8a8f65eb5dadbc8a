package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
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
		w.WriteString("\n" + g.markdown())
	}
	w.WriteString("\n## The machine\n\n")
	for _, line := range r.machine {
		w.WriteString("- " + line + "\n")
	}
	w.WriteString(docTail)
	return w.String()
}

// save makes the page, or with part replaces what is in it of the same titles.
func (r *report) save(file string, part bool) error {
	page := r.markdown()
	if part {
		data, err := os.ReadFile(file)
		if err == nil {
			page, err = r.replaced(string(data))
		}
		if err != nil {
			return err
		}
	}
	return os.WriteFile(file, []byte(page), 0o644)
}

// markdown is a section of the page.
func (g *group) markdown() string {
	var w strings.Builder
	fmt.Fprintf(&w, "## %s\n\n| figure | measured | goal | verdict | range or details |\n|---|---:|---|---|---|\n", g.title)
	for _, f := range g.figures {
		c := f.cells()
		if f.verdict == "MISSED" {
			c[3] = "**missed**"
		}
		fmt.Fprintf(&w, "| %s |\n", strings.Join(c, " | "))
	}
	return w.String()
}

// replaced is a page with these groups in place of those of the same titles, and the texts as they are now. A new group
// comes behind the others. Each says what it was measured on, which is not what the page was.
func (r *report) replaced(page string) (string, error) {
	const heading = "\n## "
	sections := strings.Split(page, heading)
	titled := func(title string) int {
		return slices.IndexFunc(sections, func(s string) bool { return strings.HasPrefix(s, title+"\n") })
	}
	for _, g := range r.groups {
		at := titled(g.title)
		if at < 0 {
			if at = titled("The machine"); at < 0 {
				return "", errors.New("this is no page of figures")
			}
			sections = slices.Insert(sections, at, "")
		}
		sections[at] = strings.TrimPrefix(g.markdown(), "## ") + "\nMeasured by itself:\n\n- " + strings.Join(r.machine, "\n- ") + "\n"
	}
	end := titled("How it is measured")
	if end < 0 {
		return "", errors.New("this is no page of figures")
	}
	sections[0] = docHead
	return strings.Join(sections[:end], heading) + docTail, nil
}

func pad(s string, n int) string     { return s + strings.Repeat(" ", n-utf8.RuneCountInString(s)) }
func padLeft(s string, n int) string { return strings.Repeat(" ", n-utf8.RuneCountInString(s)) + s }
