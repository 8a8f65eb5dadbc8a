package attack

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// TestInspectedWords: what is refused is explained and proposed as an entry, and a grant of it is in force at once, as
// are denials of single requests and of the whole name.
func TestInspectedWords(t *testing.T) {
	b := inspected(t)
	status := func(path, want string) {
		t.Helper()
		last := lab.Poke{}
		if !eventually(60*time.Second, func() bool { last = b.get(path); return statusOf(last) == want }) {
			t.Errorf("%s: want %s, %s\n%s", path, want, last, b.agent.Stderr())
		}
	}
	status("/open/x", "200")
	status("/closed/17", "403")
	status("/closed/18", "403")
	b.audited("the refusal", func(e event) bool { return e.Kind == "broker" && e.Name == "api.test" && e.Verdict == "deny" })
	b.says([]string{"explain", "GET", "https://api.test/closed/17"}, "443/tcp: denied, no entry allows such a request", "\n  api.test GET /closed/17\n")
	b.says([]string{"explain", "https://api.test/open/x"}, "443/tcp: allowed", "GET /open/x passes by allowlist.txt:2")
	b.says([]string{"suggest"}, "\napi.test GET /closed/*  ")
	b.says([]string{"check", "--effective"}, "api.test GET /open/**  ")

	b.did("allow", "api.test GET /closed/*")
	status("/closed/17", "200")
	b.did("deny", "api.test * /closed/secret")
	status("/closed/secret", "403")
	status("/closed/17", "200")
	b.says([]string{"explain", "GET", "https://api.test/closed/secret"}, "denied by the policy", "grant-2:1")
	b.refuses(78, []string{"allow", "api.test"}, "without a look at its requests", "allowlist.txt:2")

	b.did("deny", "api.test")
	if !eventually(60*time.Second, func() bool { p := b.get("/open/x"); return !p.OK && statusOf(p) != "200" }) {
		t.Error("a name that is denied is reached")
	}
	b.says([]string{"explain", "api.test"}, "denied by the policy")
	arrived := len(b.asked())
	if p := b.get("/open/x"); p.OK && statusOf(p) == "200" || len(b.asked()) != arrived {
		t.Errorf("it goes on: %s", p)
	}
	for _, g := range b.grants() {
		if g.Kind == "deny" && g.Target == "api.test" {
			b.did("grants", "--end", strconv.Itoa(g.Number))
		}
	}
	status("/open/x", "200")

	// Without its words, the name is relayed as any other: its own server answers.
	if r := b.setPolicy("ok.test\napi.test\n"); r.Code != 0 {
		t.Fatal(r)
	}
	if !eventually(60*time.Second, func() bool { return b.poke("http", "-ca", bundle, "https://api.test/anything").OK }) {
		t.Errorf("relayed: %s", b.poke("http", "-ca", bundle, "https://api.test/anything"))
	}
	// To learn what entries a name takes, nothing of it is refused.
	if r := b.setPolicy("ok.test\napi.test observe\n"); r.Code != 0 {
		t.Fatal(r)
	}
	status("/seen/7", "200")
	if !eventually(60*time.Second, func() bool { return strings.Contains(b.agentRuns("suggest").Stdout, "\napi.test GET /seen/*  ") }) {
		t.Errorf("what was seen is not proposed: %s", b.agentRuns("suggest"))
	}
	if r := b.setPolicy("ok.test\napi.test GET /open/**\n"); r.Code != 0 {
		t.Fatal(r)
	}
	status("/anything", "403")
	status("/open/x", "200")
}
