package container

import (
	"strings"
	"testing"
	"time"
)

// confinedTargets are the probes where one of each kind is enough.
func confinedTargets() []string {
	return []string{
		target("tcp", "example.com", 443),
		target("tcp", "1.1.1.1", 443),
		target("udp", "1.1.1.1", 443),
		target("tcp", "2606:4700:4700::1111", 443),
	}
}

// testLifecycle follows one container through health, exec, restarts and its end.
func testLifecycle(t *testing.T, e *engine, n *internet) {
	name := e.name(t)
	e.must(t, args([]string{"run", "-d", "--name", name, "--health-interval=1s"}, privileges(), agent(t, n),
		allow(t, "api.anthropic.com required\n"), []string{e.base, "sleep", "infinity"})...)
	health := func() string { return e.docker("inspect", "--format", "{{.State.Health.Status}}", name).stdout }
	begin := time.Now()
	eventually(t, "HEALTHCHECK says healthy", 30*time.Second, func() bool { return strings.TrimSpace(health()) == "healthy" })
	t.Logf("healthy after %v", time.Since(begin))
	mustBeConfined(t, e, n, name)

	for i := range 3 {
		begin := time.Now()
		e.must(t, "restart", name)
		eventually(t, "status is healthy after a restart", 30*time.Second, func() bool {
			return e.docker("exec", name, "agent-init", "status", "--quiet").code == 0
		})
		t.Logf("restart %d: healthy again after %v", i+1, time.Since(begin))
		mustBeConfined(t, e, n, name)
	}

	r := e.docker("stop", name)
	if r.code != 0 {
		t.Errorf("docker stop took %v (exit %d %s)", r.took, r.code, r.stderr)
	}
	t.Logf("stopped after %v", r.took)
	if code := e.must(t, "inspect", "--format", "{{.State.ExitCode}}", name); code != "143" {
		t.Errorf("the container ended %s, want 143: its command was ended by the first signal, SIGTERM", code)
	}
}

// mustBeConfined checks that shells of "docker exec" are confined as the agent is, whoever they are.
func mustBeConfined(t *testing.T, e *engine, n *internet, name string) {
	t.Helper()
	n.forget()
	for _, user := range []string{"1000", "root"} {
		if r := e.docker("exec", "-u", user, name, "agent-init", "status", "--quiet"); r.code != 0 {
			t.Errorf("status as %s: exit %d %s%s", user, r.code, r.stdout, r.stderr)
		}
		out := e.docker(args([]string{"exec", "-u", user, name, "bash", "/test/agent.sh", "--"}, confinedTargets())...)
		r := parseReport(t, out.stdout)
		r.mustRefuse(t, confinedTargets())
		if t.Failed() {
			t.Fatalf("docker exec -u %s: exit %d\n%s%s", user, out.code, out.stdout, out.stderr)
		}
	}
	arrivals, queries := n.seen()
	for _, a := range arrivals {
		if s := a.String(); s != "160.79.104.10:443" && s != "[2607:6bc0::10]:443" {
			t.Errorf("something arrived at %s", s)
		}
	}
	for _, q := range queries {
		if q == "example.com." {
			t.Error("a query for the denied name example.com arrived")
		}
	}
}

// testExitCode checks that the container ends as its command did.
func testExitCode(t *testing.T, e *engine, _ *internet) {
	for _, test := range []struct {
		name    string
		want    int
		options []string
		command []string
	}{
		{"0", 0, nil, []string{"true"}},
		{"42", 42, nil, []string{"sh", "-c", "exit 42"}},
		{"42-terminal", 42, []string{"-t"}, []string{"sh", "-c", "test -t 1 && exit 42"}},
		{"42-under-another-init", 42, []string{"--init"}, []string{"sh", "-c", "exit 42"}},
		{"137", 137, nil, []string{"sh", "-c", "kill -9 $$"}},
		{"126", 126, nil, []string{"/etc/hostname"}},
		{"127", 127, nil, []string{"no-such-command"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := e.docker(args([]string{"run", "--name", e.name(t)}, privileges(), test.options, []string{e.base}, test.command)...)
			if r.code != test.want {
				t.Errorf("exit %d, want %d\n%s%s", r.code, test.want, r.stdout, r.stderr)
			}
			t.Logf("docker run took %v", r.took)
		})
	}
}
