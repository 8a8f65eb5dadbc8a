package container

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestForeignProcesses knows the machine's processes by what none of a container's can
// claim, and a process 1 of another network.
func TestForeignProcesses(t *testing.T) {
	const user, kernel = "(x) S 1 1 1 0 -1 4194560 0 0", "(kthreadd) S 0 0 0 0 -1 2129984 0 0"
	for name, c := range map[string]struct{ two, net, want string }{
		"a container":                 {"2 " + user, "own", ""},
		"a container of one process":  {"", "own", ""},
		"the machine":                 {"2 " + kernel, "own", "machine's processes"},
		"one that calls itself so":    {"2 (kthreadd) S 1 1 1 0 -1 4194560 0 0", "own", ""},
		"with parentheses":            {"2 (a) S 0 0 0 0 -1 2129984 (b) S 1 1 1 0 -1 4194560 0 0", "own", ""},
		"nothing to read":             {"2", "own", ""},
		"another container's":         {"2 " + user, "other", "process 1 (pause) is in another network"},
		"one that can't be looked at": {"2 " + user, "", ""},
	} {
		proc := t.TempDir()
		err := errors.Join(os.MkdirAll(proc+"/self/ns", 0o755), os.MkdirAll(proc+"/1/ns", 0o755), os.MkdirAll(proc+"/2", 0o755),
			os.WriteFile(proc+"/1/comm", []byte("pause\n"), 0o644), os.WriteFile(proc+"/self/ns/net", nil, 0o644))
		if c.two != "" {
			err = errors.Join(err, os.WriteFile(proc+"/2/stat", []byte(c.two), 0o644))
		}
		switch c.net {
		case "own":
			err = errors.Join(err, os.Link(proc+"/self/ns/net", proc+"/1/ns/net"))
		case "other":
			err = errors.Join(err, os.WriteFile(filepath.Join(proc, "1/ns/net"), nil, 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := ForeignProcesses(proc); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
