package main

import (
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
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

// TestLostEventsCountedOnce: the line that tells of lost events says how many, once.
func TestLostEventsCountedOnce(t *testing.T) {
	e := audit.Event{Kind: audit.Guard, Verdict: audit.Fault, Suppressed: 108, Reason: audit.Unwritten + ": no space left on device"}
	if line := eventLine(e, time.Now(), false); strings.Count(line, "108") != 1 || !strings.HasSuffix(line, " (108 of them)") {
		t.Error(line)
	}
}
