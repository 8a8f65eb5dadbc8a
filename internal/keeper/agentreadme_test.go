package keeper

import (
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/pkg/policy"
)

func TestAgentReadme(t *testing.T) {
	p := listed(t, "ok.example\n!bad.example\n")
	var b strings.Builder
	if err := writeReadme(&b, p, []grant.Grant{{Kind: grant.Allow, Target: "new.example", Expires: noon}, {Kind: grant.Request, Target: "wish.example"}}, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ok.example                                   # allowlist.txt:1\n", "!bad.example", "`new.example` is allowed until 2026-01-01T12:00:00Z", "agent-init request HOST"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("want %q in\n%s", want, b.String())
		}
	}
	for _, not := range []string{"wish.example", "monitor", "broker"} {
		if strings.Contains(b.String(), not) {
			t.Errorf("it says %q", not)
		}
	}
	b.Reset()
	long := listed(t, strings.Repeat("ok.example\n", 3000))
	if err := writeReadme(&b, long, nil, true); err != nil || b.Len() > 32<<10 || !strings.Contains(b.String(), "and 2800 more") || !strings.Contains(b.String(), "monitor mode") {
		t.Errorf("%v, %d bytes", err, b.Len())
	}
}

// TestAgentReadmeRoutes: the agent is told where the APIs are that the broker asks, and of no route that is absent.
func TestAgentReadmeRoutes(t *testing.T) {
	p, err := policy.Parse(&policy.Bundle{Absent: []string{"gemini"}, Files: []policy.File{{Name: "policy.yaml", Data: []byte(`
broker:
  openai: {credential: env:A}
  gemini: {optional: true}
  tickets: {to: "https://t.example/api", credential: none, allow: [GET /**]}
  forge: {api: git, to: "https://git.example/", credential: none, git: write, repos: [team/*], branches: [agent/*]}
  npm: {min_age: 3d}
`)}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := writeReadme(&b, p, nil, false); err != nil {
		t.Fatal(err)
	}
	want := "- `openai`, for https://api.openai.com/: `$OPENAI_API_BASE`, `$OPENAI_API_KEY`, `$OPENAI_BASE_URL`, `$OPENAI_HOST`\n- `tickets`, for https://t.example/api/\n"
	if got := b.String(); !strings.Contains(got, want) || strings.Contains(got, "gemini") || strings.Contains(got, "%") {
		t.Errorf("want %q in\n%s", want, got)
	}
	for _, want := range []string{"the usual addresses: team/*, to read, and to push agent/*\n", "none can be published. A version that is younger than 3d does not\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("want %q in\n%s", want, b.String())
		}
	}
}
