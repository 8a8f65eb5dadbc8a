package attack

import (
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// TestLateFailureCloses: a start that fails when all is proved already, because the
// agent can't have what was asked for, doesn't go on being called ready.
func TestLateFailureCloses(t *testing.T) {
	lab.Require(t)
	lab.Require(t)
	w := startIn(t, newLab(t), allowlist, lab.BoxOptions{}, "sleep", "infinity")
	refused(t, w.root("agent-init", "run", "--session", "always", "--record", "/tmp/session.cast", "--", "echo", "started"), 64, "--record")
	if s, code := w.status(); s["phase"] != "failed" || code == 0 {
		t.Errorf("status, exit %d: %v: %v", code, s["phase"], s["reason"])
	}
	if len(w.audit(func(e event) bool { return strings.HasPrefix(e.Reason, "not started: ") })) != 1 {
		t.Errorf("the log has nothing of it: %s", w.reasons("guard"))
	}
}
