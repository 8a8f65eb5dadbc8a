package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// linesDone are the pages whose lines are held to 120 columns.
var linesDone = []string{
	"CONTRIBUTING.md",
	"README.md",
	"docs/agents/README.md",
	"docs/agents/aider.md",
	"docs/agents/claude.md",
	"docs/agents/codex.md",
	"docs/agents/copilot.md",
	"docs/agents/crush.md",
	"docs/agents/cursor.md",
	"docs/agents/gemini.md",
	"docs/agents/goose.md",
	"docs/agents/opencode.md",
	"docs/agents/pi.md",
	"docs/agents/qwen.md",
	"docs/compose.md",
	"docs/devcontainer.md",
	"docs/kubernetes.md",
	"docs/migrating.md",
	"docs/operating.md",
	"docs/platforms.md",
}

// linkOnly is a line that is one link, whose target can't be broken.
var linkOnly = regexp.MustCompile(`^\s*(?:[-*] +)?\[[^\]]*\]\([^)\s]+\)[.,;:]?$`)

// longLines are the lines of a page beyond 120 columns, but for tables, code and
// lines that are one link: what can't be broken.
func longLines(text string) []string {
	var long []string
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
		if width := utf8.RuneCountInString(line); width > 120 && !code && !strings.HasPrefix(trimmed, "|") && !linkOnly.MatchString(line) {
			long = append(long, fmt.Sprintf("%d: %d columns", i+1, width))
		}
	}
	return long
}

// TestDocsLines: no line of a page is longer than 120 columns.
func TestDocsLines(t *testing.T) {
	held := 0
	for _, p := range pages(t) {
		if !slices.Contains(linesDone, p.path) {
			continue
		}
		held++
		for _, l := range longLines(p.text) {
			t.Errorf("%s:%s", p.path, l)
		}
	}
	if held != len(linesDone) {
		t.Errorf("%d pages are held, and %d are listed", held, len(linesDone))
	}
}

// TestDocsLinesNotices shows what is found, and what is not.
func TestDocsLinesNotices(t *testing.T) {
	words := strings.Repeat("words ", 21)
	text := strings.Join([]string{
		words, "- " + words, "| " + words + "|", "", "    " + words, "", "text", "    " + words, "```sh", words, "```", words,
		"[page](https://example.com/" + strings.Repeat("x", 120) + ")", strings.Repeat("ü", 120),
	}, "\n")
	if got, want := strings.Join(longLines(text), ", "), "1: 126 columns, 2: 128 columns, 8: 130 columns, 12: 126 columns"; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
}
