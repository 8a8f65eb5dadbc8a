package inspect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/lab/golden"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// brokeredPolicy has a route of each kind: built in, absent, to a server of one's own, and one's own.
func brokeredPolicy(t *testing.T) published {
	t.Helper()
	b := &policy.Bundle{Absent: []string{"gemini", "openai"}, Files: []policy.File{
		{Name: "policy.yaml", Data: []byte(`broker:
  anthropic: {}
  openai: {optional: true, credential: env:OPENAI_API_KEY}
  gemini: {optional: true, credential: env:GEMINI_API_KEY}
  vllm: {to: "http://llm:8000/v1", private: true}
  github: {credential: env:G, git: write, repos: [my-org/*], branches: [agent/*]}
  npm: {min_age: 3d, packages: {allow: ["@my-org/*"], deny: ["@my-org/old"]}}
  tickets: {to: "https://tickets.example/api", credential: env:T, inject: {query: key}, allow: [GET /v2/**, "POST /v2/*/close"], query: [page, sort_*]}
`)},
		{Name: "allowlist.txt", Data: []byte("api.openai.com unbrokered\nllm:5432\n")},
	}}
	p, err := policy.Parse(b, allowlist.Files)
	if err != nil {
		t.Fatal(err)
	}
	s := &state.State{Phase: state.PhaseReady, Keeper: state.Self()}
	s.Broker.Port = 41234
	s.Broker.Routes = []state.Route{{Name: "gemini", Why: "GEMINI_API_KEY is not set"}}
	return published{policy: p, dir: "/etc/agent-init", state: s}
}

func TestExplainRoutes(t *testing.T) {
	p := brokeredPolicy(t)
	for target, want := range map[string][]string{
		"api.anthropic.com": {
			"api.anthropic.com 443/tcp: reached through the broker alone\n",
			"  broker       reached through the broker: http://127.0.0.1:41234/anthropic, which the agent has in ANTHROPIC_API_BASE, ANTHROPIC_BASE_URL, ANTHROPIC_HOST (policy.yaml:2)\n",
			"  asked        POST /v1/messages, POST /v1/messages/count_tokens, GET /v1/models, GET /v1/models/*; nothing else passes\n",
			"  harmless     HEAD /, HEAD /api/hello is refused, and does no harm", "!80/tcp", "!to allow", "!denied",
		},
		"anthropic":                                   {"api.anthropic.com 443/tcp: reached through the broker alone\n"},
		"https://api.anthropic.com/v1/messages/":      {"  asked        POST /v1/messages passes, if what it has inside does\n", "!harmless"},
		"https://api.anthropic.com/v1/files":          {"  asked        /v1/files is refused: no method of it is the route's\n", "!harmless"},
		"https://api.anthropic.com/api/hello":         {"  harmless     HEAD /api/hello is refused, and does no harm", "!asked"},
		"api.anthropic.com:22":                        {"22/tcp: reached through the broker alone"},
		"http://127.0.0.1:41234/anthropic/v1/files?x": {"api.anthropic.com 443/tcp: reached", "/v1/files is refused"},
		"http://127.0.0.1:41234/nobody/v1":            {"127.0.0.1 41234/tcp: allowed, the container's own loopback is free", "!broker"},
		"http://127.0.0.1:41235/anthropic":            {"127.0.0.1 41235/tcp: allowed", "!broker"},
		"https://tickets.example/api/v2/a/b":          {"  asked        GET /v2/** passes", "  parameters   page, sort_*; no other passes\n", "!POST"},
		"https://tickets.example/api/v2/7/close":      {"  asked        GET /v2/**, POST /v2/*/close passes"},
		"https://tickets.example/v2/a":                {"  asked        /v2/a is refused"},
		"https://tickets.example/apiv2/a":             {"  asked        /apiv2/a is refused"},
		"http://127.0.0.1:41234/tickets/v2/a":         {"tickets.example 443/tcp: reached", "GET /v2/** passes"},
		"llm:8000":                                    {"llm 8000/tcp: reached through the broker alone\n", "http://127.0.0.1:41234/vllm"},
		"llm:5432":                                    {"llm 5432/tcp: allowed\n", "!broker"},
		"llm:22":                                      {"llm 22/tcp: denied, the policy allows it on other ports only", "to allow it", "!broker"},
		"generativelanguage.googleapis.com": {
			"443/tcp: denied, not in the allowlist\n", "add this line", "  broker       not reached through it: the route gemini (policy.yaml:4) is absent: GEMINI_API_KEY is not set\n", "!asked",
		},
		"api.openai.com": {
			"443/tcp: allowed\n", "allowlist.txt:1  api.openai.com unbrokered",
			"  broker       not reached through it: the route openai (policy.yaml:3) is absent: there is no credential in env:OPENAI_API_KEY\n",
		},
		"github.com": {
			"github.com 443/tcp: reached through the broker alone\n", "http://127.0.0.1:41234/github, which the agent has in GIT_CONFIG_SYSTEM (policy.yaml:6)\n",
			"  git          my-org/*, to read, and to push agent/*\n", "!asked",
		},
		"npm": {
			"registry.npmjs.org 443/tcp: reached through the broker alone\n", "which the agent has in BUN_CONFIG_REGISTRY, ",
			"  packages     @my-org/* of npm, but not @my-org/old; versions younger than 3d do not exist\n",
			"  asked        what reads packages; nothing that publishes passes\n",
		},
		"https://registry.npmjs.org/left-pad":                          {"  asked        GET /* passes, if the package does\n"},
		"https://github.com/My-Org/app.git":                            {"  asked        git fetches from My-Org/app, and pushes; the page of it is refused\n"},
		"https://github.com/other/app":                                 {"  asked        /other/app is refused: no repository of that name is the route's\n"},
		"https://github.com/login":                                     {"  asked        /login is refused"},
		"http://127.0.0.1:41234/github/my-org/app.git/git-upload-pack": {"POST /*/*/git-upload-pack passes, if what it has inside does"},
		"other.example":                                                {"denied, not in the allowlist", "!broker"},
	} {
		_, got := explained(t, p, target)
		for _, text := range want {
			if not, ok := strings.CutPrefix(text, "!"); ok && strings.Contains(got, not) || !ok && !strings.Contains(got, text) {
				t.Errorf("%s: want %q in\n%s", target, text, got)
			}
		}
	}
	p.state = nil // as by files alone
	if _, got := explained(t, p, "anthropic"); !strings.Contains(got, "  broker       reached through the broker: by the route anthropic, which the agent has in") {
		t.Error(got)
	}
}

// TestExplainAskedBesideTheBroker: who asks the usual host by name is told what that means.
func TestExplainAskedBesideTheBroker(t *testing.T) {
	p := brokeredPolicy(t)
	const hint = "that is harmless if the program went on"
	for name, want := range map[string]bool{"api.anthropic.com": true, "other.example": false} {
		denied := publishedWith(t, "", []audit.Event{{Seq: 1, Time: noon, Kind: audit.DNS, Verdict: audit.Deny, Name: name, Reason: "x"}})
		p.state.Audit = denied.state.Audit
		if _, got := explained(t, p, name); !strings.Contains(got, "denied       once since") || strings.Contains(got, hint) != want {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}

func TestExplainRoutesGolden(t *testing.T) {
	p := brokeredPolicy(t)
	p.state.Audit.File = filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(p.state.Audit.File, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	x, _ := explained(t, p, "https://api.anthropic.com/api/hello")
	golden.JSON(t, "explainroute.golden.json", x)
}
