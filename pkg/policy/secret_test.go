package policy

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/pkg/route"
)

func TestReadSecret(t *testing.T) {
	mustrun.Root(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	for what, c := range map[string]struct {
		content string
		mode    os.FileMode
		uid     int
		hidden  bool
		want    string // of the error
	}{
		"fine":                     {"sk-canary", 0o400, 0, true, ""},
		"a newline":                {"sk-canary\n", 0o600, 0, true, ""},
		"of Windows":               {"sk-canary\r\n", 0o600, 0, true, ""},
		"elsewhere than the agent": {"sk-canary", 0o444, 0, false, ""},
		"readable":                 {"sk-canary", 0o444, 0, true, "others than root can read it (mode 0444)"},
		"readable by a group":      {"sk-canary", 0o440, 0, true, "others than root can read it (mode 0440)"},
		"writable":                 {"sk-canary", 0o622, 0, false, "writable"},
		"somebody's":               {"sk-canary", 0o400, 1000, true, "belongs to uid 1000"},
		"two lines":                {"sk-canary\nsk-canary", 0o400, 0, true, "other than printable ASCII"},
		"a control character":      {"sk-canary\x01", 0o400, 0, true, "other than printable ASCII"},
		"UTF-8":                    {"sk-cänary", 0o400, 0, true, "other than printable ASCII"},
		"a blank":                  {"sk-canary ", 0o400, 0, true, "blank"},
		"nothing":                  {"\n", 0o400, 0, true, "empty"},
		"long":                     {strings.Repeat("sk-canary", 8000), 0o400, 0, true, "larger than 64 KiB"},
	} {
		t.Run(what, func(t *testing.T) {
			os.Remove(path)
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Chmod(path, c.mode), os.Chown(path, c.uid, 0)); err != nil {
				t.Fatal(err)
			}
			got, err := ReadSecret(path, c.hidden)
			if c.want == "" {
				if err != nil || string(got) != "sk-canary" {
					t.Errorf("%q, %v", got, err)
				}
				return
			}
			var file *FileError
			if !errors.As(err, &file) || !strings.Contains(file.Cause, c.want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("%q, %v; want an error with %q", got, err, c.want)
			}
		})
	}
	if _, err := ReadSecret(filepath.Join(dir, "none"), true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing one: %v", err)
	}
	if _, err := ReadSecret(dir, true); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory: %v", err)
	}
}

// TestNextWith: who has the credentials is asked once, about all routes, and says which are left out.
func TestNextWith(t *testing.T) {
	b := &Bundle{Files: []File{{Name: "policy.yaml", Data: []byte("broker:\n  openai:\n    optional: true\n  anthropic:\n    credential: env:A\n")}}}
	var asked []string
	p, err := new(Policy).NextWith(b, nil, func(routes []PlacedRoute) ([]string, ErrorList) {
		for _, r := range routes {
			asked = append(asked, r.Name+" "+r.Source.String())
		}
		return []string{"openai"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(asked, ", "); got != "openai policy.yaml:2, anthropic policy.yaml:5" {
		t.Errorf("asked about %s", got)
	}
	names := func(list []route.Route) (all []string) {
		for _, r := range list {
			all = append(all, r.Name)
		}
		return all
	}
	again, err := Parse(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*Policy{p, again} {
		if got := strings.Join(append(names(p.Settings.Broker), p.AbsentRoutes...), " "); got != "anthropic openai" {
			t.Errorf("present and absent are %s", got)
		}
	}
	if _, err := new(Policy).NextWith(b, nil, func(r []PlacedRoute) ([]string, ErrorList) {
		return nil, ErrorList{{Source: r[1].Source, Text: r[1].Name, Message: "its credential is not there"}}
	}); err == nil || err.Error() != `policy.yaml:5:5: its credential is not there: "anthropic"` {
		t.Errorf("got %v", err)
	}
}
