package inspect

import (
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/policy"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func parsePolicy(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "policy.yaml", Data: []byte(text)}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
