package grant

import (
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/control"
)

// Event is the line of the audit log about what happened to g, by whom; nil is
// agent-init itself.
func (g Grant) Event(v audit.Verdict, what string, by *control.Peer) audit.Event {
	e := audit.Event{Kind: audit.Grant, Verdict: v, Name: g.Target, Rule: g.Name() + ":1", Reason: what}
	if by != nil {
		uid := by.UID
		e.UID, e.PID = &uid, by.PID
	}
	if g.Reason != "" {
		e.Reason += ": " + g.Reason
	}
	return e
}
