package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestPeopleReadFolded: no command writes its lines for people past text.Folded, so
// that a terminal breaks none of them within a word.
func TestPeopleReadFolded(t *testing.T) {
	past := regexp.MustCompile(`Screen\{W: e\.stdout\}|\b[wW]rite\(e\.stdout|\.WriteTable\(e\.stdout`)
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	folded := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		source, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		folded += strings.Count(string(source), "text.Folded(e.stdout")
		if hit := past.Find(source); hit != nil {
			t.Errorf("%s: %s", f.Name(), hit)
		}
	}
	if folded < 8 {
		t.Errorf("only %d commands fold what they write", folded)
	}
}
