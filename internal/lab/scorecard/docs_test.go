package scorecard

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// named is a test as the docs write it: by its name, with a subtest or without, or by how several begin.
var named = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)((?:/[A-Za-z0-9_-]+)*)(…?)`")

// TestDocsNameTests: whatever SECURITY.md, the README and the pages of docs name
// as the proof of a claim exists.
func TestDocsNameTests(t *testing.T) {
	const root = "../../.."
	files, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		more, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	exists := allTests(t, root)
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if missing := missingTests(string(text), exists); len(missing) > 0 {
			t.Errorf("%s names what is no test: %s", file, strings.Join(missing, ", "))
		}
		found += len(named.FindAllString(string(text), -1))
	}
	if found < 150 {
		t.Errorf("found only %d names of tests", found)
	}
}

// TestDocsNameTestsNotices shows that it can fail.
func TestDocsNameTestsNotices(t *testing.T) {
	exists := map[string]bool{"TestTunnel": true, "FuzzFilter": true, "TestLedgerKeeps": true}
	got := missingTests("`TestTunnel`, `FuzzFilter`, `TestLedger…`, `TestLedger`, `FuzzFilters`, `TestGone…` `TestTunnel/dns` `TestTunnels/dns`", exists)
	if want := "TestLedger FuzzFilters TestGone… TestTunnels"; strings.Join(got, " ") != want {
		t.Errorf("missing are %q, want %s", got, want)
	}
}

func missingTests(text string, exists map[string]bool) []string {
	var missing []string
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		found := exists[m[1]]
		if m[3] != "" {
			for name := range exists {
				found = found || strings.HasPrefix(name, m[1])
			}
		}
		if !found {
			missing = append(missing, m[1]+m[3])
		}
	}
	return missing
}

// allTests are the names of the tests of all packages.
func allTests(t *testing.T, root string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if found, err := filepath.Glob(filepath.Join(path, "*_test.go")); err != nil || len(found) == 0 {
			return err
		}
		for name := range tests(t, path) {
			all[name] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
