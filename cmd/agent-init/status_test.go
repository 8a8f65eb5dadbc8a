package main

import (
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/state"
)

// TestStatusLogInMemory: a log that everybody can leave no room for says so.
func TestStatusLogInMemory(t *testing.T) {
	for file, want := range map[string]bool{"/dev/shm/agent-init/log/audit.jsonl": true, "/var/log/agent-init/audit.jsonl": false} {
		s := goldenState()
		s.Audit.File = file
		var b strings.Builder
		s.Write(&b, true, nil, false)
		if strings.Contains(b.String(), "which the agent can fill") != want {
			t.Errorf("%s: %s", file, b.String())
		}
	}
}

// TestStatusUnproved: without a self-test nothing is said to be proved.
func TestStatusUnproved(t *testing.T) {
	s := goldenState()
	for proof, want := range map[*state.SelfTest]string{
		s.SelfTest: "confined and healthy\n",
		nil:        "confined and healthy, but not proved: no self-test was run\n",
	} {
		s.SelfTest = proof
		var out strings.Builder
		s.Write(&out, true, nil, false)
		if !strings.HasPrefix(out.String(), want) {
			t.Errorf("want %q of\n%s", want, out.String())
		}
	}
}
