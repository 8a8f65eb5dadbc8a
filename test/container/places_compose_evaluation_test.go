package container

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// evaluated are names of which each phase of deploy/evaluation allows others.
var evaluated = []string{"api.anthropic.com", "deb.debian.org", "pypi.org", "evil.example.net"}

// testComposeHarness plays a harness: the task's container is root, and has in each phase what the gateway lets it have.
func testComposeHarness(t *testing.T, e *engine, n *internet, idle string) {
	task := t.TempDir()
	for script, patience := range map[string]string{"setup": "5s", "agent": "5s", "test": "5s", "late": "300ms"} {
		ask := fmt.Appendf(nil, `for name in %s; do poke http -timeout %s -insecure "https://$name/"; done`+"\n", strings.Join(evaluated, " "), patience)
		if err := os.WriteFile(filepath.Join(task, script+".sh"), ask, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := newProject(t, e, "../evaluation/gateway.yaml", "evaluation.yaml", []string{"TASK_IMAGE=" + idle, "GATEWAY_IMAGE=" + e.base, "TASK=" + task, "POKE=" + buildPoke(t), "PARENT=" + lonelyLink(t, e.netns)})
	p.must("up", "-d", "--wait")
	plays := func(script string, want ...string) {
		t.Helper()
		n.forget()
		lines := strings.Split(p.must("exec", "-T", "main", "sh", "/task/"+script+".sh"), "\n")
		if len(lines) != len(evaluated) {
			t.Fatalf("%s says %q", script, lines)
		}
		for i, line := range lines {
			if strings.Contains(line, `"status":`) != slices.Contains(want, evaluated[i]) {
				t.Errorf("%s, %s: %s", script, evaluated[i], line)
			}
		}
	}
	enters := func(phase string) {
		t.Helper()
		p.must("exec", "-T", "gateway", "/usr/local/bin/agent-init", "phase", phase)
	}
	plays("setup", "api.anthropic.com", "deb.debian.org", "pypi.org")
	enters("run")
	plays("agent", "api.anthropic.com")
	mustArriveOnlyAt(t, n, "160.79.104.10:443")
	for _, addr := range []string{"93.184.216.34", "172.30.6.1", p.gateway("outside"), p.address("gateway", "outside")} { // the host has the first three
		if r := p.compose("exec", "-T", "main", "poke", "tcp", "-timeout", "1s", addr+":443"); !strings.Contains(r.stdout, `"ok":false`) {
			t.Errorf("%s, past the gateway: %s%s", addr, r.stdout, r.stderr)
		}
	}
	mustArriveOnlyAt(t, n, "160.79.104.10:443")
	enters("verify")
	plays("test", "pypi.org")
	p.must("stop", "-t", "1", "gateway")
	plays("late")
	mustArriveOnlyAt(t, n)
}

// testComposeSandbox: in one container, the agent's user has in each phase what that allows.
func testComposeSandbox(t *testing.T, e *engine, n *internet) {
	p := newProject(t, e, "../evaluation/compose.yaml", "", []string{"TASK_IMAGE=" + e.base})
	p.must("up", "-d", "--wait")
	has := func(phase string, want ...string) {
		t.Helper()
		for _, name := range evaluated {
			r := p.compose("exec", "-T", "-u", "agent", "default", "curl", "-sSk", "--max-time", "5", "-o", "/dev/null", "-w", "answered with %{http_code}", "https://"+name+"/")
			if answered := strings.Contains(r.stdout, "answered with ") && !strings.Contains(r.stdout, "with 000"); answered != slices.Contains(want, name) {
				t.Errorf("%s: %s: exit %d\n%s%s", phase, name, r.code, r.stdout, r.stderr)
			}
		}
	}
	has("setup", "pypi.org")
	p.must("exec", "-T", "-u", "root", "default", "/usr/local/bin/agent-init", "phase", "run")
	n.forget()
	has("run")
	mustArriveOnlyAt(t, n)
	p.must("exec", "-T", "-u", "root", "default", "/usr/local/bin/agent-init", "phase", "verify")
	has("verify", "pypi.org")
}
