package inspect

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestInspectedWords: what is refused is explained and proposed as an entry, and a grant of it is in force at once, as
// are denials of single requests and of the whole name.
func TestInspectedWords(t *testing.T) {
	b := inspected(t)
	status := func(path, want string) {
		t.Helper()
		last := lab.Poke{}
		if !rig.Eventually(60*time.Second, func() bool { last = b.Get(path); return rig.StatusOf(last) == want }) {
			t.Errorf("%s: want %s, %s\n%s", path, want, last, b.Agent.Stderr())
		}
	}
	status("/open/x", "200")
	status("/closed/17", "403")
	status("/closed/18", "403")
	b.Audited("the refusal", func(e rig.Event) bool { return e.Kind == "broker" && e.Name == "api.test" && e.Verdict == "deny" })
	b.Says([]string{"explain", "GET", "https://api.test/closed/17"}, "443/tcp: denied, no entry allows such a request", "\n  api.test GET /closed/17\n")
	b.Says([]string{"explain", "https://api.test/open/x"}, "443/tcp: allowed", "GET /open/x passes by allowlist.txt:2")
	b.Says([]string{"suggest"}, "\napi.test GET /closed/*  ")
	b.Says([]string{"check", "--effective"}, "api.test GET /open/**  ")

	b.Did("allow", "api.test GET /closed/*")
	status("/closed/17", "200")
	b.Did("deny", "api.test * /closed/secret")
	status("/closed/secret", "403")
	status("/closed/17", "200")
	b.Says([]string{"explain", "GET", "https://api.test/closed/secret"}, "denied by the policy", "grant-2:1")
	b.Refuses(78, []string{"allow", "api.test"}, "without a look at its requests", "allowlist.txt:2")

	b.Did("deny", "api.test")
	if !rig.Eventually(60*time.Second, func() bool { p := b.Get("/open/x"); return !p.OK && rig.StatusOf(p) != "200" }) {
		t.Error("a name that is denied is reached")
	}
	b.Says([]string{"explain", "api.test"}, "denied by the policy")
	arrived := len(asked(b))
	if p := b.Get("/open/x"); p.OK && rig.StatusOf(p) == "200" || len(asked(b)) != arrived {
		t.Errorf("it goes on: %s", p)
	}
	for _, g := range b.Grants() {
		if g.Kind == "deny" && g.Target == "api.test" {
			b.Did("grants", "--end", strconv.Itoa(g.Number))
		}
	}
	status("/open/x", "200")

	// Without its words, the name is relayed as any other: its own server answers.
	if r := b.SetPolicy("ok.test\napi.test\n"); r.Code != 0 {
		t.Fatal(r)
	}
	if !rig.Eventually(60*time.Second, func() bool { return b.Poke("http", "-ca", rig.Bundle, "https://api.test/anything").OK }) {
		t.Errorf("relayed: %s", b.Poke("http", "-ca", rig.Bundle, "https://api.test/anything"))
	}
	// To learn what entries a name takes, nothing of it is refused.
	if r := b.SetPolicy("ok.test\napi.test observe\n"); r.Code != 0 {
		t.Fatal(r)
	}
	status("/seen/7", "200")
	if !rig.Eventually(60*time.Second, func() bool { return strings.Contains(b.AgentRuns("suggest").Stdout, "\napi.test GET /seen/*  ") }) {
		t.Errorf("what was seen is not proposed: %s", b.AgentRuns("suggest"))
	}
	if r := b.SetPolicy("ok.test\napi.test GET /open/**\n"); r.Code != 0 {
		t.Fatal(r)
	}
	status("/anything", "403")
	status("/open/x", "200")
}
