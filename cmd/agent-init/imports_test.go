package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/agent-init/agent-init/"

// level0 may import nothing of ours; every other package under pkg may import
// level0, and never its own level. They meet in this package only.
var level0 = []string{"pkg/policy", "pkg/audit", "pkg/reaper"}

// testOnly are the directories of internal that no program is linked with.
var testOnly = []string{"lab", "mustrun", "netns", "testdata"}

// TestImports holds the one direction that imports go in.
func TestImports(t *testing.T) {
	root := filepath.Join("..", "..")
	if faults := importFaults(t, root); len(faults) > 0 {
		t.Errorf("imports against the levels:\n%s", strings.Join(faults, "\n"))
	}
}

// TestImportsNoticesAFault shows that the rule can fail.
func TestImportsNoticesAFault(t *testing.T) {
	root := t.TempDir()
	for path, imports := range map[string]string{
		"pkg/policy/a.go":   module + "pkg/audit",
		"pkg/selftest/a.go": module + "pkg/firewall",
		"pkg/session/a.go":  "os/exec",
		"pkg/resolver/a.go": module + "pkg/policy",
	} {
		file := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("package p\nimport _ "+strconv.Quote(imports)+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if faults := importFaults(t, root); len(faults) != 3 {
		t.Errorf("found %d of 3 faults:\n%s", len(faults), strings.Join(faults, "\n"))
	}
}

func importFaults(t *testing.T, root string) []string {
	t.Helper()
	var faults []string
	err := filepath.WalkDir(filepath.Join(root, "pkg"), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "testdata" {
			return filepath.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if fault := judge(dir, name); fault != "" {
				faults = append(faults, fmt.Sprintf("%s: %s", path, fault))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return faults
}

func judge(dir, imported string) string {
	if imported == "os/exec" {
		// os/exec waits for its child by itself, and would race with the
		// reaper for the status.
		return "imports os/exec; start processes through the reaper"
	}
	ours, ok := strings.CutPrefix(imported, module)
	if !ok || strings.HasPrefix(ours, dir+"/") {
		return ""
	}
	switch {
	case slices.Contains(level0, dir) || slices.ContainsFunc(level0, func(l string) bool { return strings.HasPrefix(dir, l+"/") }):
		return "level 0 imports " + ours
	case !slices.Contains(level0, ours):
		return "level 1 imports " + ours
	}
	return ""
}

// TestImportsExec: of the program, only detect, which supervises nothing, starts
// processes by os/exec.
func TestImportsExec(t *testing.T) {
	root := filepath.Join("..", "..")
	var users []string
	for _, dir := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() && slices.Contains(testOnly, d.Name()) {
				return filepath.SkipDir
			}
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, spec := range file.Imports {
				if spec.Path.Value == `"os/exec"` {
					users = append(users, path)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(users, []string{filepath.Join(root, "internal/detect/detect.go")}) {
		t.Errorf("os/exec is imported by %q", users)
	}
}
