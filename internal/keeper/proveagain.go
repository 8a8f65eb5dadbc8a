package keeper

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// proveAgain runs the self-test for a person, by the policy that is in force now.
// The status keeps what the start has come to: a name that is down for a moment
// makes no container unhealthy.
func (k *keeper) proveAgain(ctx context.Context, p control.Peer) control.Reply {
	if !k.proving.TryLock() {
		return state.Refuse(fault.Failure, "wait until it has ended", "another self-test is under way")
	}
	defer k.proving.Unlock()
	plan := k.selfTestPlan()
	if err := k.dir.Write(state.ProbesFile, 0o644, plan); err != nil {
		return state.RefuseWith(err)
	}
	report, err := k.runSelfTest(ctx, plan, true)
	if err != nil {
		return state.Refuse(fault.SelfTest, "see agent-init status", "the self-test could not be run: %w", err)
	}
	e := audit.Event{Kind: audit.SelfTest, Verdict: audit.Info, UID: &p.UID, PID: p.PID, Reason: "passed again: " + sizeOfReport(report)}
	if !report.OK {
		e.Verdict, e.Reason = audit.Fault, "failed, when run again: "+strings.Join(report.Failures(), "; ")
	}
	k.record(e)
	return state.Answer(report)
}

func sizeOfReport(r selftest.Report) string {
	return fmt.Sprintf("%s in %v", text.Counted(len(r.Checks), "check", "checks"), millis(r.Millis))
}

func millis(ms float64) time.Duration {
	return time.Duration(ms * float64(time.Millisecond)).Round(time.Millisecond)
}
