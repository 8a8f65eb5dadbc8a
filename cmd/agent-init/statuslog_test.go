package main

import (
	"strings"
	"testing"
)

// TestStatusLogInMemory: a log that everybody can leave no room for says so.
func TestStatusLogInMemory(t *testing.T) {
	for file, want := range map[string]bool{"/dev/shm/agent-init/log/audit.jsonl": true, "/var/log/agent-init/audit.jsonl": false} {
		s := goldenState()
		s.Audit.File = file
		var b strings.Builder
		s.write(&b, true, nil, false)
		if strings.Contains(b.String(), "which the agent can fill") != want {
			t.Errorf("%s: %s", file, b.String())
		}
	}
}
