package policy

import (
	"fmt"
	"strings"
)

// Error is one thing that is wrong, or worth a warning, in one place of a policy file.
type Error struct {
	Source     Source `json:"source"`
	Text       string `json:"text,omitempty"` // what is offending, shortened
	Message    string `json:"message"`
	Suggestion string `json:"suggestion,omitempty"` // what was probably meant, "" if nobody knows
}

// Error returns `file:line:col: message: "text" (did you mean …?)`.
func (e Error) Error() string {
	s := e.Message
	if e.Text != "" {
		s += fmt.Sprintf(": %q", e.Text)
	}
	if e.Suggestion != "" {
		s += " (did you mean " + e.Suggestion + "?)"
	}
	switch {
	case e.Source.File == "":
		return s
	case e.Source.Col > 0:
		return fmt.Sprintf("%v:%d: %s", e.Source, e.Source.Col, s)
	}
	return e.Source.String() + ": " + s
}

// ErrorList is every error of every file, in order. A long list is cut; its last item then counts the rest.
type ErrorList []Error

// Error returns one line per error.
func (l ErrorList) Error() string {
	lines := make([]string, len(l))
	for i, e := range l {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

const maxErrors = 100

// problems collects errors, or warnings: so many, and a count of the rest.
type problems struct {
	list ErrorList
	more int
}

func (p *problems) add(e Error) {
	e.Text, e.Suggestion = shorten(e.Text), shorten(e.Suggestion)
	if len(p.list) >= maxErrors {
		p.more++
		p.list, e = p.list[:maxErrors], Error{Message: fmt.Sprintf("and %d more", p.more)}
	}
	p.list = append(p.list, e)
}

// join adds all of o.
func (p *problems) join(o problems) {
	for _, e := range o.list[:min(len(o.list), maxErrors)] {
		p.add(e)
	}
	for range o.more {
		p.add(Error{})
	}
}

// count is how many there were.
func (p *problems) count() int { return len(p.list) + p.more }

// shorten bounds a text from a file to what fits on a line.
func shorten(s string) string {
	const limit = 80
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-1], "") + "…"
}

// Nearest returns the candidate that word was probably meant to be, or "".
func Nearest(word string, candidates []string) string {
	most := 2
	if len(word) < 5 {
		most = 1
	}
	for edits := range most + 1 {
		for _, c := range candidates {
			if near(word, c, edits) {
				return c
			}
		}
	}
	return ""
}

// near says whether so many letters inserted, deleted, replaced or swapped with their neighbour make b of a.
func near(a, b string, edits int) bool {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	switch {
	case a == "" || b == "":
		return len(a)+len(b) <= edits
	case edits == 0:
		return false
	case len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] && near(a[2:], b[2:], edits-1):
		return true
	}
	return near(a[1:], b, edits-1) || near(a, b[1:], edits-1) || near(a[1:], b[1:], edits-1)
}
