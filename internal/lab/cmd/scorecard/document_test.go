package main

import (
	"os"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab/scorecard"
)

// TestDocument: a page can be made, of whatever places there are results.
func TestDocument(t *testing.T) {
	untried := scorecard.Column{Title: "here", Results: [][]scorecard.Result{make([]scorecard.Result, len(scorecard.Attacks()))}}
	for _, columns := range [][]scorecard.Column{nil, {untried}} {
		page, err := document(columns, columns)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"| E01 |", "| more of it in |", "\n- **E42**, ", "\n## Any image\n"} {
			if !strings.Contains(page, want) {
				t.Errorf("no %q in\n%s", want, page)
			}
		}
	}
}

// TestDocsScorecard: docs/scorecard.md has each line of the text that it is made from.
func TestDocsScorecard(t *testing.T) {
	made, err := os.ReadFile("../../../../docs/scorecard.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(page) {
		if !strings.Contains(line, "{{") && !strings.Contains(string(made), line) {
			t.Errorf("docs/scorecard.md lacks: %s", line)
		}
	}
}
