package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocsDependencies: docs/dependencies.md has each module of go.mod, and in its
// table those that are linked into the program, and no other.
func TestDocsDependencies(t *testing.T) {
	read := func(file string) string {
		data, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	text := read("docs/dependencies.md")
	for _, m := range regexp.MustCompile(`(?m)^\t([a-z.]+/\S+) v`).FindAllStringSubmatch(read("go.mod"), -1) {
		if !strings.Contains(text, m[1]) {
			t.Errorf("docs/dependencies.md does not have %s", m[1])
		}
	}
	list := exec.Command("go", "list", "-deps", "-f", `{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}`, ".")
	list.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := slices.Compact(slices.Sorted(slices.Values(strings.Fields(string(out)))))
	got := table(t, "docs/dependencies.md", "module")
	slices.Sort(got)
	if !slices.Equal(got, linked) {
		t.Errorf("docs/dependencies.md has\n%v\nand linked are\n%v", got, linked)
	}
}
