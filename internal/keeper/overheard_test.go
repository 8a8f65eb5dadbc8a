package keeper

import (
	"testing"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// TestOverheard: of a connection that a self-test could not make, the guard's own
// reason is told.
func TestOverheard(t *testing.T) {
	var o overheard
	o.about(selftest.Plan{Required: []selftest.Target{{Name: "llm.test", Port: 443}, {Name: "up.test", Port: 443}}})
	for _, e := range []audit.Event{
		{Kind: audit.Connect, Verdict: audit.Allow, Name: "llm.test", Reason: "could not connect: connection refused", Asker: audit.BySelfTest},
		{Kind: audit.Connect, Verdict: audit.Deny, Name: "llm.test", Reason: "the agent's own"},
		{Kind: audit.Connect, Verdict: audit.Allow, Name: "up.test", Reason: "closed", In: 7, Asker: audit.BySelfTest},
		{Kind: audit.Connect, Verdict: audit.Deny, Name: "other.test", Reason: "no", Asker: audit.BySelfTest},
	} {
		o.hear(e)
	}
	r := selftest.Report{Checks: []selftest.Check{
		{Name: "required", Target: "llm.test:443", Want: selftest.Reachable, Got: selftest.Blocked, Detail: "closed"},
		{Name: "required", Target: "up.test:443", Want: selftest.Reachable, Got: selftest.Reachable, OK: true, Detail: "192.0.2.1"},
	}}
	o.explain(r)
	if got := r.Checks[0].Detail; got != "closed; the name gate says: could not connect: connection refused" {
		t.Error(got)
	}
	if got := r.Checks[1].Detail; got != "192.0.2.1" {
		t.Error(got)
	}
	if len(o.reasons) != 2 {
		t.Errorf("keeps %d reasons", len(o.reasons))
	}
}
