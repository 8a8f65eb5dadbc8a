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

// TestStatusWays: what passes by the name gate is told with what that gives away.
func TestStatusWays(t *testing.T) {
	s := goldenState()
	for want, direct := range map[string]int{
		"direct: 1 entry leads past the name gate. Whatever else is at those addresses is reached as well; see agent-init check\n":  1,
		"direct: 2 entries lead past the name gate. Whatever else is at those addresses is reached as well; see agent-init check\n": 2,
		"inspected: 2 names with a port, request by request, by the broker\n":                                                       0,
	} {
		s.Policy.Direct = direct
		var b strings.Builder
		s.Write(&b, true, nil, false)
		if !strings.Contains(b.String(), want) || strings.Contains(b.String(), "direct:") != (direct > 0) {
			t.Errorf("want %q of\n%s", want, b.String())
		}
	}
}
