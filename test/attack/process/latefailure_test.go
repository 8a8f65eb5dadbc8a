package process

import (
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestLateFailureCloses: a start that fails when all is proved already, because the
// agent can't have what was asked for, doesn't go on being called ready.
func TestLateFailureCloses(t *testing.T) {
	lab.Require(t)
	lab.Require(t)
	w := rig.StartIn(t, rig.NewLab(t), rig.Allowlist, lab.BoxOptions{}, "sleep", "infinity")
	rig.Refused(t, w.Root("agent-init", "run", "--session", "always", "--record", "/tmp/session.cast", "--", "echo", "started"), 64, "--record")
	if s, code := w.Status(); s["phase"] != "failed" || code == 0 {
		t.Errorf("status, exit %d: %v: %v", code, s["phase"], s["reason"])
	}
	if len(w.Audit(func(e rig.Event) bool { return strings.HasPrefix(e.Reason, "not started: ") })) != 1 {
		t.Errorf("the log has nothing of it: %s", w.Reasons("guard"))
	}
}
