package fault

import (
	"math"
	"regexp"
	"strings"
	"testing"
)

// TestLaunch: a remedy is in the words of what has started the container.
func TestLaunch(t *testing.T) {
	file := func(path string) func(string) bool { return func(p string) bool { return p == path } }
	for want, l := range map[string]Launch{
		"try -e AGENT_INIT_SELFTEST=warn (compose: environment), or --frozen now": launchOf(nil, file("/.dockerenv")),
		"try -e AGENT_INIT_SELFTEST=warn, or --frozen now":                        launchOf(nil, file("/run/.containerenv")),
		`try env: [{name: AGENT_INIT_SELFTEST, value: "warn"}], or --frozen now`:  launchOf(map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, file("")),
		`try "containerEnv": {"AGENT_INIT_SELFTEST": "warn"}, or --frozen now`:    launchOf(map[string]string{"REMOTE_CONTAINERS": "true"}, file("/.dockerenv")),
		"try --selftest warn, or --frozen now":                                    launchOf(nil, file("")),
	} {
		if got := l.Spell("try --selftest warn, or --frozen now", func(flag string) bool { return flag == "selftest" }); got != want {
			t.Errorf("%q: %s, want %s", l, got, want)
		}
	}
	for _, l := range []Launch{ByHand, ByDocker, ByPodman, ByKubernetes, ByDevTool} {
		if s := l.Capabilities("NET_ADMIN", "SETUID"); !strings.Contains(s, "NET_ADMIN") || !strings.Contains(s, "SETUID") {
			t.Errorf("%q: %s", l, s)
		}
		if s := l.AsRoot(); !strings.Contains(s, map[bool]string{true: "root", false: "USER"}[l == ByHand]) {
			t.Errorf("%q: %s", l, s)
		}
		// An engine's own option may be called like a setting of ours.
		for _, s := range []string{l.AsRoot(), l.Capabilities("NET_ADMIN"), l.MoreTasks(1), l.MoreFiles(1)} {
			if got := l.Spell(s, func(string) bool { return true }); got != s {
				t.Errorf("%q: %s became %s", l, s, got)
			}
		}
	}
}

// TestRaises: what a remedy says a limit should be is above what it is.
func TestRaises(t *testing.T) {
	number := regexp.MustCompile(`\d+`)
	for now, want := range map[uint64]string{0: "256", 20: "256", 256: "512", 4000: "8000", math.MaxUint64: "2147483648"} {
		for _, l := range []Launch{ByHand, ByDocker, ByPodman, ByDevTool} {
			if s := l.MoreTasks(now); number.FindString(s) != want {
				t.Errorf("tasks, %d: %s", now, s)
			}
		}
	}
	for now, want := range map[uint64]string{64: "1024", 4096: "8192"} {
		if s := ByDocker.MoreFiles(now); number.FindString(s) != want {
			t.Errorf("files, %d: %s", now, s)
		}
	}
}

func TestOutside(t *testing.T) {
	pod := map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
	for name, c := range map[string]struct {
		env      map[string]string
		hostname string
		mark     string
		want     string
	}{
		"docker":               {nil, "0123456789ab", "/.dockerenv", "docker exec -it 0123456789ab "},
		"docker with a name":   {nil, "web", "/.dockerenv", "docker exec -it CONTAINER "},
		"podman":               {nil, "0123456789ab", "/run/.containerenv", "podman exec -it 0123456789ab "},
		"a pod":                {pod, "agent-0", "", "kubectl exec -it agent-0 -- "},
		"a pod without a name": {pod, "", "", ""},
		"somewhere else":       {nil, "0123456789ab", "", ""},
	} {
		if got := outside(c.env, c.hostname, func(path string) bool { return path == c.mark }); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := ComeBack(nil, 1234); got != "agent-init attach" {
		t.Errorf("from a shell inside: %q", got)
	}
}
