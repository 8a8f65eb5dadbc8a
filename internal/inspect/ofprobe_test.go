package inspect

import (
	"testing"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// TestOfProbe: what a self-test in a shell of the agent's tried is no wish of the
// agent's, and the same from another program is.
func TestOfProbe(t *testing.T) {
	probe := probesIn(selftest.DefaultPlan("example.com"))
	for name, tc := range map[string]struct {
		event audit.Event
		want  bool
	}{
		"by agent-init":    {audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: "example.com", PID: 9, Comm: "agent-init"}, false},
		"by nobody known":  {audit.Event{Kind: audit.Drop, Verdict: audit.Deny, IP: "1.1.1.1", Port: 443, Proto: "tcp"}, false},
		"by curl":          {audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: "example.com", PID: 9, Comm: "curl"}, true},
		"another port":     {audit.Event{Kind: audit.Drop, Verdict: audit.Deny, IP: "1.1.1.1", Port: 22, Proto: "tcp"}, true},
		"another name":     {audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: "new.example"}, true},
		"of the self-test": {audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: "x.example", Asker: audit.BySelfTest}, false},
		"of the guard":     {audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: "x.example", Asker: audit.ByGuard}, false},
		"from outside":     {audit.Event{Kind: audit.Drop, Verdict: audit.Deny, IP: "192.0.2.1", Asker: audit.ByOutside}, false},
		"allowed":          {audit.Event{Kind: audit.DNS, Verdict: audit.Allow, Name: "new.example"}, false},
	} {
		if got := probe.theAgents(tc.event); got != tc.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
