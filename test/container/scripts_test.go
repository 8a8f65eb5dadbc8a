package container

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestScripts: each script of the tests ends where something fails, and gets what it lacks by those few that verify it.
// make lint says where set -e is off in a function (shellcheck's check-set-e-suppressed).
func TestScripts(t *testing.T) {
	getters := []string{"test/debian.sh", "test/npm.sh", "images/fetch.sh"}
	// As a command: at the beginning of one, or behind what lets another command run.
	gets := regexp.MustCompile(`(?:^|[;&|({!]|\b(?:then|do|else|exec|nice|env)\b|"\$\()\s*(?:[A-Z_]+=\S* )*(apt|apt-get|apt-cache|debootstrap|npm|pip|curl|wget)\s`)
	var scripts []string
	for _, pattern := range []string{"test/*.sh", "test/places/*.sh", "images/*.sh", ".ci/run"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		scripts = append(scripts, found...)
	}
	for _, path := range scripts {
		name, _ := filepath.Rel("../..", path)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		strict := name == "test/with-engine.sh" // which is read by others
		for n, line := range strings.Split(string(data), "\n") {
			line = strings.TrimSpace(line)
			strict = strict || strings.HasPrefix(line, "set -eu")
			if strings.HasPrefix(line, "#") || slices.Contains(getters, name) {
				continue
			}
			if m := gets.FindStringSubmatch(line + " "); m != nil {
				t.Errorf("%s:%d: %s: get it by %s, which pin and verify it", name, n+1, m[1], strings.Join(getters, ", "))
			}
		}
		if !strict {
			t.Errorf("%s goes on after errors: set -eu", name)
		}
	}
}
