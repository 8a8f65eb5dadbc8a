package scorecard

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// named is a test as SECURITY.md writes it: by its name, by the number of an
// attack, or by how several begin.
var named = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)(…?)`")

// TestSecurityNamesTests: whatever SECURITY.md names as the proof of a claim
// exists.
func TestSecurityNamesTests(t *testing.T) {
	const root = "../../.."
	text, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	missing := missingTests(string(text), allTests(t, root))
	if len(missing) > 0 {
		t.Errorf("SECURITY.md names what is no test: %s", strings.Join(missing, ", "))
	}
	if n := len(named.FindAllString(string(text), -1)); n < 30 {
		t.Errorf("found only %d names of tests", n)
	}
}

// TestSecurityNamesTestsNotices shows that it can fail.
func TestSecurityNamesTestsNotices(t *testing.T) {
	exists := map[string]bool{"TestLabE01Tunnel": true, "FuzzFilter": true, "TestLedgerKeeps": true}
	got := missingTests("`TestLabE01`, `FuzzFilter`, `TestLedger…`, `TestLabE02`–`TestLabE01`, `TestLedger`, `FuzzFilters`, `TestGone…`", exists)
	if want := "TestLabE02 TestLedger FuzzFilters TestGone…"; strings.Join(got, " ") != want {
		t.Errorf("missing are %q, want %s", got, want)
	}
}

func missingTests(text string, exists map[string]bool) []string {
	number := regexp.MustCompile(`^TestLab[EX][0-9]{2}$`)
	var missing []string
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		found := exists[m[1]]
		if m[2] != "" || number.MatchString(m[1]) {
			for name := range exists {
				found = found || strings.HasPrefix(name, m[1])
			}
		}
		if !found {
			missing = append(missing, m[1]+m[2])
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
