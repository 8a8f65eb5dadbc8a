package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPeopleReadFolded: no command writes its lines for people past text.Folded, so
// that a terminal breaks none of them within a word.
func TestPeopleReadFolded(t *testing.T) {
	past := regexp.MustCompile(`Screen\{W: e\.stdout\}|\b[wW]rite\(e\.stdout|\.WriteTable\(e\.stdout`)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	folded := 0
	for _, f := range append(files, root+"/internal/inspect/log.go") {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		source, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		folded += strings.Count(string(source), "text.Folded(") + strings.Count(string(source), "e.show(")
		if hit := past.Find(source); hit != nil {
			t.Errorf("%s: %s", f, hit)
		}
	}
	if folded < 8 {
		t.Errorf("only %d commands fold what they write", folded)
	}
}
