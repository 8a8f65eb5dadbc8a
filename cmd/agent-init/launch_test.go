package main

import (
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// TestLaunch: a remedy is in the words of what has started the container.
func TestLaunch(t *testing.T) {
	file := func(path string) func(string) bool { return func(p string) bool { return p == path } }
	for want, l := range map[string]launch{
		"try -e AGENT_INIT_SELFTEST=warn (compose: environment), or --frozen now": launchOf(nil, file("/.dockerenv")),
		"try -e AGENT_INIT_SELFTEST=warn, or --frozen now":                        launchOf(nil, file("/run/.containerenv")),
		`try env: [{name: AGENT_INIT_SELFTEST, value: "warn"}], or --frozen now`:  launchOf(map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, file("")),
		`try "containerEnv": {"AGENT_INIT_SELFTEST": "warn"}, or --frozen now`:    launchOf(map[string]string{"REMOTE_CONTAINERS": "true"}, file("/.dockerenv")),
		"try --selftest warn, or --frozen now":                                    launchOf(nil, file("")),
	} {
		if got := l.spell("try --selftest warn, or --frozen now"); got != want {
			t.Errorf("%q: %s, want %s", l, got, want)
		}
	}
	for _, l := range []launch{byHand, byDocker, byPodman, byKubernetes, byDevTool} {
		if s := l.capabilities("NET_ADMIN", "SETUID"); !strings.Contains(s, "NET_ADMIN") || !strings.Contains(s, "SETUID") {
			t.Errorf("%q: %s", l, s)
		}
	}
}

// TestVariables: a variable that would change nothing stops the start, and what
// Kubernetes sets for a service of the name does not.
func TestVariables(t *testing.T) {
	for name, want := range map[string]string{
		"AGENT_INIT_SELFTEST":              "",
		"AGENT_INIT_LOG_LEVEL":             "",
		"AGENT_INIT_UNSAFE_NO_FIREWALL":    "",
		"AGENT_SESSION":                    "",
		"AGENT_INIT_SERVICE_HOST":          "",
		"AGENT_INIT_SERVICE_PORT":          "",
		"AGENT_INIT_SERVICE_PORT_HTTPS":    "",
		"AGENT_INIT_PORT":                  "",
		"AGENT_INIT_WEB_PORT_443_TCP_ADDR": "",
		"AGENT_INIT_SELFTST":               "did you mean AGENT_INIT_SELFTEST?",
		"AGENT_INIT_LOGLEVEL":              "did you mean AGENT_INIT_LOG_LEVEL?",
		"AGENT_INIT_INBOUND":               "write inbound: [3000] into policy.yaml",
		"AGENT_INIT_TOKEN":                 "strange",
	} {
		strange, err := checkVariables(map[string]string{name: "3000"})
		switch f, ok := err.(*fault); {
		case want == "strange" && err == nil && len(strange) == 1:
		case want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case want != "" && (!ok || f.code != exitUsage || f.remedy != want):
			t.Errorf("%s: %+v", name, err)
		}
	}
}

// TestOverheard: of a connection that a self-test could not make, the guard's own
// reason is told.
func TestOverheard(t *testing.T) {
	var o overheard
	o.about(selftest.Plan{Required: []selftest.Target{{Name: "llm.test", Port: 443}, {Name: "up.test", Port: 443}}})
	for _, e := range []audit.Event{
		{Kind: audit.Connect, Verdict: audit.Allow, Name: "llm.test", Reason: "could not connect: connection refused", Asker: audit.BySelfTest},
		{Kind: audit.Connect, Verdict: audit.Deny, Name: "llm.test", Reason: "the agent's own"},
		{Kind: audit.Connect, Verdict: audit.Allow, Name: "up.test", Reason: "closed", In: 7, Asker: audit.BySelfTest},
		{Kind: audit.Connect, Verdict: audit.Deny, Name: "other.test", Reason: "no", Asker: audit.BySelfTest},
	} {
		o.hear(e)
	}
	r := selftest.Report{Checks: []selftest.Check{
		{Name: "required", Target: "llm.test:443", Want: selftest.Reachable, Got: selftest.Blocked, Detail: "closed"},
		{Name: "required", Target: "up.test:443", Want: selftest.Reachable, Got: selftest.Reachable, OK: true, Detail: "192.0.2.1"},
	}}
	o.explain(r)
	if got := r.Checks[0].Detail; got != "closed; the name gate says: could not connect: connection refused" {
		t.Error(got)
	}
	if got := r.Checks[1].Detail; got != "192.0.2.1" {
		t.Error(got)
	}
	if len(o.reasons) != 2 {
		t.Errorf("keeps %d reasons", len(o.reasons))
	}
}
