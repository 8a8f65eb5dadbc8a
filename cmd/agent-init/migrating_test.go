package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/policy"
)

// The names that a list is asked about, whichever tool it was written for.
var migratingNames = []string{
	"github.com", "api.github.com", "gist.github.com", "notgithub.com", "github.com.evil.test", "githubxcom.test",
	"githubusercontent.com", "raw.githubusercontent.com", "a.b.githubusercontent.com",
	"api.openai.com", "openai.com", "chatgpt.com", "www.chatgpt.com",
	"example.com", "api.example.com", "v1.api.example.com", "mcp.example.com", "apixexample.com",
	"example.org", "www.example.org", "evil.example.org", "x.evil.example.org", "notexample.org", "example.net", "a_b.example.net", "registry.example.net", "v2.registry.example.net",
	"api.anthropic.com", "registry.npmjs.org", "update.code.visualstudio.com", "registry.corp.example", "corp.example",
	"host.docker.internal", "localai", "evil.test",
}

// What each tool makes of a list, by its own words about it.
type oracle func(list, name string) bool

// lines calls match with each line that is no comment.
func lines(list string, match func(line string) bool) bool {
	return slices.ContainsFunc(strings.Split(list, "\n"), func(line string) bool {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		return line != "" && match(line)
	})
}

// exactly: the script resolved each name, and opened its addresses.
func exactly(list, name string) bool {
	return lines(list, func(line string) bool { return line == name })
}

// orBelow: *.example.com is example.com and every name below it, example.com is itself.
func orBelow(list, name string) bool {
	return lines(list, func(line string) bool {
		base, wild := strings.CutPrefix(strings.Trim(line, `- "`), "*.")
		return name == base || wild && strings.HasSuffix(name, "."+base)
	})
}

// searched: each line is an expression that is looked for in the name, whatever its case.
func searched(list, name string) bool {
	return lines(list, func(line string) bool { return regexp.MustCompile("(?i)" + line).MatchString(name) })
}

// inScript: the names are the quoted words of a list in shell.
func inScript(list, name string) bool {
	_, list, _ = strings.Cut(list, "for domain in")
	list, _, _ = strings.Cut(list, "do\n")
	return strings.Contains(list, `"`+name+`"`)
}

// covering: a name is every name below it, too; several stand on a line.
func covering(list, name string) bool {
	return lines(list, func(line string) bool {
		return slices.ContainsFunc(strings.Split(line, ","), func(d string) bool {
			d, wild := strings.CutPrefix(strings.TrimSpace(d), "*.")
			return strings.HasSuffix(name, "."+d) || !wild && name == d
		})
	})
}

// TestMigrating has the lists of other tools say what they said: the files of testdata/migrating as they are,
// or after the commands of docs/migrating.md.
func TestMigrating(t *testing.T) {
	for _, tt := range []struct {
		name, section, file string
		says                oracle
		blocked             string   // the file whose names are denied
		more                []string // allowed beyond that: presets, and what the document says is wider
	}{
		{name: "kinoto", file: "kinoto.txt", says: exactly},
		{name: "mattolson", file: "mattolson.yaml", says: orBelow, more: []string{"update.code.visualstudio.com"}},
		{name: "marvincaspar", file: "marvincaspar.txt", says: orBelow},
		{name: "tinyproxy", file: "tinyproxy.txt", says: searched},
		{name: "claude-code", section: "Claude Code's devcontainer", file: "init-firewall.sh", says: inScript,
			more: []string{"github.com", "api.github.com", "raw.githubusercontent.com"}},
		{name: "gh-aw", section: "gh-aw-firewall", file: "allowed-domains.txt", says: covering, blocked: "blocked-domains.txt",
			more: []string{"githubusercontent.com"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			read := func(name string) string {
				data, err := os.ReadFile(filepath.Join("testdata/migrating", name))
				if err != nil {
					t.Fatal(err)
				}
				return string(data)
			}
			list, file := read(tt.file), filepath.Join("testdata/migrating", tt.file)
			if tt.section != "" {
				file = converted(t, tt.section)
			}
			p := effectiveOf(t, file)
			for _, name := range migratingNames {
				want := tt.says(list, name) || slices.Contains(tt.more, name)
				if tt.blocked != "" && covering(read(tt.blocked), name) {
					want = false
				}
				if got := p.Decide(name, policy.Port{Proto: policy.TCP, Number: 443}); got.Allowed != want {
					t.Errorf("%s: allowed %v (%s), but the tool says %v", name, got.Allowed, got.Reason, want)
				}
			}
		})
	}
}

// effectiveOf puts a file through "check --effective", and returns the policy that was printed.
func effectiveOf(t *testing.T, file string) *policy.Policy {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(environment{args: []string{"check", "--effective", file}, stdout: &stdout, stderr: &stderr}); code != fault.OK {
		t.Fatalf("check: exit %d\n%s", code, stderr.String())
	}
	p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "effective.txt", Data: stdout.Bytes()}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// converted runs the commands of a section of docs/migrating.md beside the samples, and returns the path
// of the allowlist that they make.
func converted(t *testing.T, section string) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/migrating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(doc), "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	_, text, found := strings.Cut(text, "```sh\n")
	script, _, closed := strings.Cut(text, "```")
	if !ok || !found || !closed {
		t.Fatalf("docs/migrating.md has no commands in %q", section)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/migrating")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-eu", "-c", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return filepath.Join(dir, "allowlist.txt")
}

// TestMigratingRefusals: what can't be said is refused, never taken for something wider.
func TestMigratingRefusals(t *testing.T) {
	for file, want := range map[string][]string{
		"mattolson-rules.yaml": {`2:5: a preset takes no rules: name its hosts under domains`, `7:5: rules for single requests stand behind the name, in an entry for each: "api.example.com" (did you mean api.example.com GET /PATH/**?)`},
	} {
		var stdout, stderr bytes.Buffer
		path := filepath.Join("testdata/migrating", file)
		if code := run(environment{args: []string{"check", path}, stdout: &stdout, stderr: &stderr}); code != fault.Policy {
			t.Errorf("%s: exit %d, want %d", file, code, fault.Policy)
		}
		for _, w := range want {
			if !strings.Contains(stderr.String(), fmt.Sprintf("%s:%s", path, w)) {
				t.Errorf("%s: no %q in\n%s", file, w, stderr.String())
			}
		}
	}
}
