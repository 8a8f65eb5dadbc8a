package inspect

import (
	"testing"

	"github.com/agent-init/agent-init/internal/lab/golden"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// TestCheckGolden holds what programs read.
func TestCheckGolden(t *testing.T) {
	bad := Checked{Version: 1, Errors: policy.ErrorList{
		{Source: policy.Source{File: "allowlist.txt", Line: 2, Col: 1}, Text: "*.com", Message: "the wildcard covers a public suffix"},
		{Source: policy.Source{File: "policy.yaml", Line: 3, Col: 5}, Text: "allowed", Message: "unknown key", Suggestion: "domains"},
	}, Warnings: []policy.Error{{Message: "a warning"}}}
	ways, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "allowlist.txt", Data: []byte(
		"api.test GET,HEAD /open/** max_upload=0\n!api.test * /open/secret\n*.seen.test:8080 http observe\ns3.test direct\nold.test:9000\n")}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for file, v := range map[string]Checked{
		"checkways.golden.json": Checked{Version: 1, OK: true, checkedWays: waysOf(ways), Policy: new(ways.Report())},
		"check.golden.json":     bad, "checkroutes.golden.json": Checked{Version: 1, OK: true, Routes: checkedRoutes([]route.Route{{
			Name: "openai", To: "https://api.openai.com/", Credential: []route.Source{{File: "/run/secrets/openai"}, {Env: "OPENAI_API_KEY"}},
			Inject: route.Inject{Header: "authorization", Value: "Bearer {}"}, Optional: true, ProviderTools: []string{"web_search"},
			Models: []string{"gpt-5*"}, Limits: route.Limits{RequestsPerMinute: 120, TokensPerDay: 5_000_000},
		}})},
	} {
		golden.JSON(t, file, v)
	}
}
