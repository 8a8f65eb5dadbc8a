package fault

import (
	"strings"
	"testing"
)

// TestLaunch: a remedy is in the words of what has started the container.
func TestLaunch(t *testing.T) {
	file := func(path string) func(string) bool { return func(p string) bool { return p == path } }
	for want, l := range map[string]Launch{
		"try -e AGENT_INIT_SELFTEST=warn (compose: environment), or --frozen now": LaunchOf(nil, file("/.dockerenv")),
		"try -e AGENT_INIT_SELFTEST=warn, or --frozen now":                        LaunchOf(nil, file("/run/.containerenv")),
		`try env: [{name: AGENT_INIT_SELFTEST, value: "warn"}], or --frozen now`:  LaunchOf(map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, file("")),
		`try "containerEnv": {"AGENT_INIT_SELFTEST": "warn"}, or --frozen now`:    LaunchOf(map[string]string{"REMOTE_CONTAINERS": "true"}, file("/.dockerenv")),
		"try --selftest warn, or --frozen now":                                    LaunchOf(nil, file("")),
	} {
		if got := l.Spell("try --selftest warn, or --frozen now", func(flag string) bool { return flag == "selftest" }); got != want {
			t.Errorf("%q: %s, want %s", l, got, want)
		}
	}
	for _, l := range []Launch{ByHand, ByDocker, ByPodman, ByKubernetes, ByDevTool} {
		if s := l.Capabilities("NET_ADMIN", "SETUID"); !strings.Contains(s, "NET_ADMIN") || !strings.Contains(s, "SETUID") {
			t.Errorf("%q: %s", l, s)
		}
	}
}
