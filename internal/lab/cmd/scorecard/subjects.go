package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/agent-init/agent-init/internal/lab/scorecard"
)

//go:embed subjects.tmpl
var subjectsPage string

// madeFrom writes the page, and returns the exit code.
func madeFrom(page string, files []string) int {
	text, err := subjectsFrom(files)
	if err == nil {
		err = os.WriteFile(filepath.Clean(page), []byte(text), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scorecard:", err)
		return 1
	}
	return 0
}

// subjectsFrom is docs/subjects.md, of reports in JSON.
func subjectsFrom(files []string) (string, error) {
	var all []told
	for _, file := range files {
		data, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			return "", err
		}
		var r scorecard.Report
		if err := json.Unmarshal(data, &r); err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		for _, v := range r.Subjects {
			if v.Subject == nil || !v.Works {
				return "", fmt.Errorf("%s: nothing that is allowed could be reached in %s: its settings are at fault", file, v.Title)
			}
			all = append(all, told{v, r.Date, r.Kernel})
		}
	}
	t, err := template.New("page").Parse(subjectsPage)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = t.Execute(&out, all)
	return out.String(), err
}

// told is a verdict as the page tells it.
type told struct {
	scorecard.Verdict
	date, kernel string
}

// Heading is the subject's; a scope of npm's is no link to anybody.
func (t told) Heading() string { return t.Subject.Name + " " + t.Subject.Version }

// Anchor is where the page has the heading.
func (t told) Anchor() string {
	return strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(t.Heading()), ""), " ", "-")
}

// Leaking are the names of the attacks that leak.
func (t told) Leaking() string {
	var ids []string
	for _, a := range t.leaks() {
		ids = append(ids, a.ID)
	}
	return strings.Join(ids, " ")
}

// Text says what the subject promises, and how it was set up.
func (t told) Text() string {
	s := t.Subject
	out := wrapped("", s.Promises) + "[Where it says so](" + s.Source + ").\n\n" + wrapped("", "Settings: "+s.Settings)
	if len(s.Wrap) > 0 {
		out += wrapped("", "The agent's command is started by `"+strings.Join(s.Wrap, " ")+"`.")
	}
	return out + wrapped("", "Tried on "+t.date+", with Linux "+t.kernel+".")
}

// List has what arrived, for each attack that leaked.
func (t told) List() string {
	var out strings.Builder
	for _, a := range t.leaks() {
		out.WriteString(wrapped("  ", "- **"+a.ID+"**, "+a.Title+": "+strings.Join(a.Leaks[:min(len(a.Leaks), 3)], "; ")+"."))
	}
	if out.Len() > 0 {
		return "\n" + out.String()
	}
	return ""
}

func (t told) leaks() (out []scorecard.Trial) {
	for _, a := range t.Attacks {
		if a.Outcome == "leaks" {
			out = append(out, a)
		}
	}
	return out
}

// wrapped is a text in lines that a page may have, all but the first with a margin.
func wrapped(margin, text string) string {
	const most = 118
	var out strings.Builder
	n := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case n+1+len(word) > most:
			out.WriteString("\n" + margin)
			n = len(margin)
		default:
			out.WriteByte(' ')
			n++
		}
		out.WriteString(word)
		n += len(word)
	}
	return out.String() + "\n"
}
