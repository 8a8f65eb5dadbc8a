package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab/scorecard"
)

// TestDocument: a page can be made, of whatever places there are results.
func TestDocument(t *testing.T) {
	untried := scorecard.Column{Title: "here", Results: [][]scorecard.Result{make([]scorecard.Result, len(scorecard.Attacks()))}}
	for _, columns := range [][]scorecard.Column{nil, {untried}} {
		page, err := document(columns, columns, columns)
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

// TestUpdated: what is made from behind gateways alone leaves the results of the rest as they were.
func TestUpdated(t *testing.T) {
	column := func(title string) []scorecard.Column {
		return []scorecard.Column{{Title: title, Results: [][]scorecard.Result{make([]scorecard.Result, len(scorecard.Attacks()))}}}
	}
	full, err := document(column("modes"), column("images"), nil)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(full, "\n## Behind a gateway\n")
	_, after, _ := strings.Cut(rest, "\n## ") // as it was before there were gateways
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte(before+"\n## "+after), 0o600); err != nil {
		t.Fatal(err)
	}
	page, err := document(nil, nil, column("gateway"))
	if err == nil {
		page, err = updated(file, page)
	}
	want, werr := document(column("modes"), column("images"), column("gateway"))
	if err != nil || werr != nil || page != want {
		t.Errorf("%v %v\n%s", err, werr, page)
	}
	if err := os.WriteFile(file, []byte("# Scorecard\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := updated(file, page); err == nil {
		t.Error("a page without results was updated")
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
