package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// testOnly are the directories of internal that no program is linked with.
var testOnly = []string{"lab", "mustrun", "netns", "testdata"}

const module = "github.com/agent-init/agent-init/"

// levels are what the program is made of, from the bottom. A package may import those
// of the levels below its own. What stands in a directory of a package's belongs to it.
// Every package under pkg that is not named here is of the third level.
var levels = [][]string{
	{"pkg/budget", "pkg/route", "internal/lazy", "internal/race"},
	{"internal/fault", "internal/text", "internal/wire", "pkg/policy", "pkg/audit", "pkg/reaper", "pkg/control", "allowlist.d", "internal/metric"},
	{"pkg"},
	{"internal/approval", "internal/grant", "internal/lease", "internal/state", "internal/stage", "internal/stage/child", "internal/ids", "internal/upstream", "internal/container", "internal/mcp"},
	{"internal/guard", "internal/broker", "internal/window", "internal/inspect", "internal/top", "internal/detect", "internal/launch"},
	{"internal/keeper", "internal/report"},
	{"cmd/agent-init", "cmd/agent-init-host"},
}

// never are the packages that those in front of them may not import, whatever their level.
var never = map[string][]string{
	"internal/guard": {"pkg/firewall"}, // it holds no right to change a rule; drops only reads the log of refusals

	// The plan knows no kernel, and no backend another.
	"pkg/firewall/internal/plan":      {"pkg/firewall"},
	"pkg/firewall/internal/nfnetlink": {"pkg/firewall"},
	"pkg/firewall/internal/nft":       {"pkg/firewall/internal/xtables"},
	"pkg/firewall/internal/xtables":   {"pkg/firewall/internal/nft"},
}

// TestImports holds the one direction that imports go in.
func TestImports(t *testing.T) {
	if faults := importFaults(t, root); len(faults) > 0 {
		t.Errorf("imports against the levels:\n%s", strings.Join(faults, "\n"))
	}
}

// TestImportsNoticesAFault shows that each rule can fail.
func TestImportsNoticesAFault(t *testing.T) {
	for file, c := range map[string]struct{ imports, fault string }{
		"pkg/policy/a.go":                 {module + "pkg/audit", "of its own level"},
		"pkg/selftest/a.go":               {module + "pkg/firewall", "of its own level"},
		"pkg/session/terminal/a.go":       {module + "pkg/reaper", ""},
		"pkg/session/a.go":                {module + "pkg/session/terminal", ""},
		"pkg/privdrop/a.go":               {"os/exec", "os/exec"},
		"pkg/gateway/a.go":                {module + "internal/state", "of a level above"},
		"internal/fault/a.go":             {module + "internal/text", "of its own level"},
		"internal/state/a.go":             {module + "pkg/policy", ""},
		"internal/lease/a.go":             {module + "internal/grant", "of its own level"},
		"internal/stage/a.go":             {module + "internal/keeper", "of a level above"},
		"internal/guard/a.go":             {module + "pkg/firewall", "never"},
		"internal/guard/b.go":             {module + "pkg/firewall/drops", ""},
		"pkg/firewall/internal/plan/a.go": {module + "pkg/firewall/internal/nfnetlink", "never"},
		"pkg/firewall/internal/nft/a.go":  {module + "pkg/firewall/internal/xtables", "never"},
		"pkg/firewall/internal/nft/b.go":  {module + "pkg/firewall/internal/plan", ""},
		"pkg/firewall/a.go":               {module + "pkg/firewall/internal/plan", ""},
		"internal/inspect/a.go":           {module + "internal/window", "of its own level"},
		"internal/keeper/a.go":            {module + "internal/window", ""},
		"internal/report/a.go":            {module + "internal/keeper", "of its own level"},
		"internal/report/b.go":            {module + "internal/inspect", ""},
		"internal/keeper/b.go":            {module + "cmd/agent-init", "of a level above"},
		"internal/detect/a.go":            {"os/exec", ""},
		"internal/launch/a.go":            {"os/exec", ""},
		"internal/window/a.go":            {module + "internal/lab", "for tests"},
		"internal/elsewhere/a.go":         {"os", "no level"},
		"internal/lab/scorecard/a.go":     {module + "pkg/audit", ""},
		"cmd/agent-init/a.go":             {module + "internal/keeper", ""},
		"cmd/agent-init/b.go":             {"os/exec", "os/exec"},
	} {
		t.Run(file, func(t *testing.T) {
			top := t.TempDir()
			path := filepath.Join(top, file)
			for _, dir := range []string{"cmd", "internal", "pkg", filepath.Dir(file)} {
				if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(path, []byte("package p\nimport _ "+strconv.Quote(c.imports)+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			faults := importFaults(t, top)
			if c.fault == "" && len(faults) > 0 || c.fault != "" && (len(faults) != 1 || !strings.Contains(faults[0], c.fault)) {
				t.Errorf("%s imports %s: %q, want %q", file, c.imports, faults, c.fault)
			}
		})
	}
}

func importFaults(t *testing.T, top string) []string {
	t.Helper()
	var faults []string
	for _, tree := range []string{"cmd", "internal", "pkg"} {
		err := filepath.WalkDir(filepath.Join(top, tree), func(path string, d os.DirEntry, err error) error {
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
			name, err := filepath.Rel(top, path)
			if err != nil {
				return err
			}
			for _, spec := range file.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					return err
				}
				if fault := judgeImport(name, imported); fault != "" {
					faults = append(faults, fmt.Sprintf("%s: %s", name, fault))
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return faults
}

// judgeImport says what is wrong with what a file imports.
func judgeImport(file, imported string) string {
	dir := filepath.Dir(file)
	from, level := levelOf(dir)
	if level < 0 {
		return "is of no level: give it one"
	}
	if imported == "os/exec" && from != "internal/detect" && from != "internal/launch" { // which supervise nothing
		// os/exec waits for its child by itself, and would race with the
		// reaper for the status.
		return "imports os/exec; start processes through the reaper"
	}
	ours, ok := strings.CutPrefix(imported, module)
	if !ok {
		return ""
	}
	if _, ok := among(strings.TrimPrefix(ours, "internal/"), testOnly); ok {
		return "imports " + ours + ", which is for tests"
	}
	to, below := levelOf(ours)
	closest, _ := among(dir, slices.Collect(maps.Keys(never)))
	switch _, bad := among(ours, never[closest]); {
	case bad && ours != "pkg/firewall/drops":
		return "imports " + ours + ", which it may never"
	case from == to:
		return ""
	case below == level:
		return "imports " + ours + ", which is of its own level"
	case below < 0 || below > level:
		return "imports " + ours + ", which is of a level above"
	}
	return ""
}

// levelOf returns the package that a directory belongs to, and its level; -1 for none.
func levelOf(dir string) (pkg string, level int) {
	for i, list := range levels {
		if p, ok := among(dir, list); ok && p != "pkg" {
			return p, i
		}
	}
	if rest, ok := strings.CutPrefix(dir, "pkg/"); ok {
		name, _, _ := strings.Cut(rest, "/")
		return "pkg/" + name, slices.IndexFunc(levels, func(l []string) bool { return slices.Contains(l, "pkg") })
	}
	return "", -1
}

// among finds the package of a list that a directory belongs to.
func among(dir string, list []string) (pkg string, ok bool) {
	for _, p := range list {
		if dir == p || strings.HasPrefix(dir, p+"/") {
			return p, true
		}
	}
	return "", false
}
