package keeper

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestDocsStart: docs/architecture.md has the steps of the start, in their order.
func TestDocsStart(t *testing.T) {
	data, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	var told, done []string
	for _, m := range regexp.MustCompile(`(?m)^[0-9]+\. \*\*(.*?)\*\*`).FindAllStringSubmatch(string(data), -1) {
		told = append(told, m[1])
	}
	for _, s := range stepsOf(t) {
		done = append(done, s[1])
	}
	if !slices.Equal(told, done) {
		t.Errorf("docs/architecture.md has\n%q, boot.go\n%q", told, done)
	}
}

// stepsOf are the names and parts of the steps in boot.go.
func stepsOf(t *testing.T) [][]string {
	t.Helper()
	data, err := os.ReadFile("boot.go")
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`then\(s, "([^"]+)", "([^"]+)", b\.`).FindAllStringSubmatch(string(data), -1)
}
