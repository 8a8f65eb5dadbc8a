package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxColumns = 120 // of a line
	maxCells   = 6   // of a row of a table
	maxWords   = 30  // of a cell
)

var (
	// linkOnly is a line that is one link, whose target can't be broken.
	linkOnly = regexp.MustCompile(`^\s*(?:[-*] +)?\[[^\]]*\]\([^)\s]+\)[.,;:]?$`)
	cellEdge = regexp.MustCompile(`(?:^|[^\\])\|`)
)

// tooLong says what of a page is hard to read: lines that are too long, and rows of
// tables that should be a section. Code and lines that are one link can't be broken.
func tooLong(text string) []string {
	var found []string
	fenced, blank := false, true
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			fenced = !fenced
		}
		code := fenced || blank && strings.HasPrefix(line, "    ")
		if !code {
			blank = trimmed == ""
		}
		width := utf8.RuneCountInString(line)
		switch {
		case code || linkOnly.MatchString(line):
		case strings.HasPrefix(trimmed, "|"):
			cells := cellEdge.Split(strings.Trim(trimmed, "|"), -1)
			if len(cells) > maxCells {
				found = append(found, fmt.Sprintf("%d: %d cells", i+1, len(cells)))
			}
			for _, c := range cells {
				if words := len(strings.Fields(c)); words > maxWords {
					found = append(found, fmt.Sprintf("%d: %d words in a cell", i+1, words))
				}
			}
		case width > maxColumns:
			found = append(found, fmt.Sprintf("%d: %d columns", i+1, width))
		}
	}
	return found
}

// TestDocsLines: no page has a line beyond 120 columns, nor a table that is a text.
func TestDocsLines(t *testing.T) {
	for _, p := range pages(t) {
		for _, l := range tooLong(p.text) {
			t.Errorf("%s:%s", p.path, l)
		}
	}
}

// TestDocsLinesNotices shows what is found, and what is not.
func TestDocsLinesNotices(t *testing.T) {
	words := strings.Repeat("words ", 21)
	text := strings.Join([]string{
		words, "- " + words, "| " + words + "|", "", "    " + words, "", "text", "    " + words, "```sh", words, "```", words,
		"[page](https://example.com/" + strings.Repeat("x", 120) + ")", strings.Repeat("ü", 120),
		"| a | b | c | d | e | `f\\|g` |", "| a | b | c | d | e | f | g |", "| a | " + words + words + " |",
	}, "\n")
	want := "1: 126 columns, 2: 128 columns, 8: 130 columns, 12: 126 columns, 16: 7 cells, 17: 42 words in a cell"
	if got := strings.Join(tooLong(text), ", "); got != want {
		t.Errorf("found %s, want %s", got, want)
	}
}
