package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/state"
)

// TestAgentNamed: what a command about one agent proposes is about that one as well.
func TestAgentNamed(t *testing.T) {
	for _, c := range []struct{ agent, says, want string }{
		{"", "agent-init allow ok.test", "agent-init allow ok.test"},
		{"beta", "to allow it: agent-init allow ok.test --for 10m; see agent-init grants", "to allow it: agent-init allow --agent beta ok.test --for 10m; see agent-init grants --agent beta"},
		{"beta", "agent-init status --agent alpha, agent-init gateway --inside eth1", "agent-init status --agent alpha, agent-init gateway --inside eth1"},
	} {
		var out bytes.Buffer
		err := environment{agent: c.agent}.naming(&out, "", func(w io.Writer) error {
			_, err := io.WriteString(w, c.says)
			return err
		})
		if err != nil || out.String() != c.want {
			t.Errorf("%v: %s", err, out.String())
		}
	}
}

// TestAgentsFiles: where agent-init does not run, the files of a gateway with several agents are looked at for the agent that
// is named, whatever its directory is called. What is wrong with them is said to be that agent's.
func TestAgentsFiles(t *testing.T) {
	t.Cleanup(func() { state.Select("") })
	dir := t.TempDir()
	for name, data := range map[string]string{
		"policy.yaml":                "agents:\n  - {name: alpha, address: 172.30.5.10}\n  - {name: beta, address: 172.30.5.11, policy: shared}\n  - {name: gamma, address: 172.30.5.12}\n",
		"agents/alpha/allowlist.txt": "ok.test\n", "agents/shared/allowlist.txt": "ok2.test\n", "wrong/allowlist.txt": "*.com\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	said := func(args ...string) (out, errs string, code int) {
		var o, e bytes.Buffer
		code = run(environment{args: append([]string{args[0], "--config", dir}, args[1:]...), stdin: os.Stdin, stdout: &o, stderr: &e})
		return o.String(), e.String(), code
	}
	for _, c := range []struct {
		args      string
		code      int
		out, errs string
	}{
		{"explain --agent alpha ok.test", 0, "ok.test 443/tcp: allowed", ""},
		{"explain --agent alpha ok2.test", 0, "agents/alpha/allowlist.txt", ""},
		{"explain --agent beta ok2.test", 0, "ok2.test 443/tcp: allowed", ""},
		{"explain --agent delta ok.test", 64, "", "name one of these: alpha beta gamma"},
		{"explain ok.test", 64, "", "agent-init explain --agent alpha"},
		{"check --agent beta --effective", 0, "ok2.test ", ""},
		{"check", 0, "agent beta, in " + dir + "/agents/shared", "agent gamma: there is no directory " + dir + "/agents/gamma"},
	} {
		if out, errs, code := said(strings.Fields(c.args)...); code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) {
			t.Errorf("%s: exit code %d\n%s%s", c.args, code, out, errs)
		}
	}
	if err := os.Rename(filepath.Join(dir, "wrong"), filepath.Join(dir, "agents/gamma")); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := said("check"); code != 78 || !strings.HasPrefix(errs, "agent gamma: allowlist.txt:1:1: ") {
		t.Errorf("gamma's file is wrong: exit code %d\n%s%s", code, out, errs)
	}
}

// TestGatewayFlags: a gateway has no flag that it refuses whatever its value is.
func TestGatewayFlags(t *testing.T) {
	if gatewaySettings().Lookup("inbound") != nil {
		t.Error("a gateway lets nobody in, and has a flag for it")
	}
}
