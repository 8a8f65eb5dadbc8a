package policy

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Error is one thing that is wrong, or worth a warning, in one place of a
// policy file.
type Error struct {
	Source     Source `json:"source"`
	Text       string `json:"text,omitempty"` // what is offending, shortened
	Message    string `json:"message"`
	Suggestion string `json:"suggestion,omitempty"` // what was probably meant, "" if nobody knows
}

// Error returns `file:line:col: message: "text" (did you mean …?)`.
func (e Error) Error() string {
	var b strings.Builder
	if e.Source.File != "" {
		b.WriteString(e.Source.String())
		if e.Source.Col > 0 {
			b.WriteString(":" + strconv.Itoa(e.Source.Col))
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	if e.Text != "" {
		fmt.Fprintf(&b, ": %q", e.Text)
	}
	if e.Suggestion != "" {
		fmt.Fprintf(&b, " (did you mean %s?)", e.Suggestion)
	}
	return b.String()
}

// ErrorList is every error of every file, in the order of the files and lines.
// A long list is cut; its last item then counts the rest.
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

// problems collects errors, or warnings, and bounds how many are kept.
type problems struct {
	list ErrorList
	more int
}

func (p *problems) add(e Error) {
	if len(p.list) == maxErrors {
		p.more++
		return
	}
	e.Text = shorten(e.Text)
	e.Suggestion = shorten(e.Suggestion)
	p.list = append(p.list, e)
}

// all returns what was collected, and a count of what was not; nil if nothing was.
func (p *problems) all() ErrorList {
	if p.more == 0 {
		return p.list
	}
	return append(p.list[:len(p.list):len(p.list)], Error{Message: fmt.Sprintf("and %d more", p.more)})
}

// shorten bounds a text from a file to what fits on a line.
func shorten(s string) string {
	const limit = 80
	if len(s) <= limit {
		return s
	}
	cut := limit - 1
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// Nearest returns the candidate that word was probably meant to be, or "".
func Nearest(word string, candidates []string) string {
	best, bestAt := "", 3
	if len(word) < 5 {
		bestAt = 2
	}
	for _, c := range candidates {
		if d := distance(word, c, bestAt); d < bestAt {
			best, bestAt = c, d
		}
	}
	return best
}

// distance returns the number of letters to insert, delete, replace or swap
// with their neighbour to make b of a, or limit if there are as many or more.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return min(row[len(b)], limit)
}
