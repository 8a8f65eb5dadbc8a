package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryCommandIsScripted: for each command that people use there is a script
// that runs it, with its output or how it ends, see TestScripts.
func TestEveryCommandIsScripted(t *testing.T) {
	files, err := filepath.Glob("../../test/attack/record/testdata/*.console")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	scripted := map[string]bool{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		_, script, _ := strings.Cut(string(data), "-- script\n")
		for line := range strings.Lines(script) {
			if !strings.HasPrefix(line, "# ") && !strings.HasPrefix(line, "$ ") {
				continue
			}
			words := strings.Fields(line)
			for i, w := range words[:len(words)-1] {
				if w == "agent-init" {
					scripted[words[i+1]] = true
				}
			}
		}
	}
	for _, c := range visible() {
		if !scripted[c.name] {
			t.Errorf("no script runs agent-init %s", c.name)
		}
	}
}
