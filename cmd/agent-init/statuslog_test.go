package main

import (
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
)

// TestLostEventsCountedOnce: the line that tells of lost events says how many, once.
func TestLostEventsCountedOnce(t *testing.T) {
	e := audit.Event{Kind: audit.Guard, Verdict: audit.Fault, Suppressed: 108, Reason: audit.Unwritten + ": no space left on device"}
	if line := eventLine(e, time.Now(), false); strings.Count(line, "108") != 1 || !strings.HasSuffix(line, " (108 of them)") {
		t.Error(line)
	}
}
