package guard

import (
	"net/netip"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// TestProbing: while a self-test is under way, what it tries is told from what
// somebody else was seen to do.
func TestProbing(t *testing.T) {
	var p probing
	own := audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: "example.com"}
	if p.mark(own).Asker != audit.Agent || p.tries("example.com", netip.Addr{}) {
		t.Error("an event before any self-test is a probe's")
	}
	plan := selftest.DefaultPlan("example.com")
	plan.Required = []selftest.Target{{Name: "llm.example", Port: 443}, {Name: "192.0.2.7", Port: 443}}
	p.begin(plan)
	for name, tc := range map[string]struct {
		event audit.Event
		want  bool
	}{
		"probed name":            {own, true},
		"probed address":         {audit.Event{Kind: audit.Drop, Verdict: audit.Deny, IP: "169.254.169.254"}, true},
		"probed gate":            {audit.Event{Kind: audit.Connect, Verdict: audit.Deny, IP: "1.1.1.1"}, true},
		"required name":          {audit.Event{Kind: audit.DNS, Verdict: audit.Allow, Name: "llm.example"}, true},
		"required address":       {audit.Event{Kind: audit.Connect, Verdict: audit.Allow, IP: "192.0.2.7"}, true},
		"by a process":           {audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: "example.com", PID: 7, Comm: "curl"}, false},
		"the guard's own":        {audit.Event{Kind: audit.DNS, Verdict: audit.Allow, Name: "llm.example", Asker: audit.ByGuard}, false},
		"other at the gate":      {audit.Event{Kind: audit.Connect, Verdict: audit.Deny, IP: "192.0.2.1"}, false},
		"another name":           {audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: "evil.example"}, false},
		"another address":        {audit.Event{Kind: audit.Drop, Verdict: audit.Deny, IP: "192.0.2.1"}, false},
		"no address and no name": {audit.Event{Kind: audit.Drop, Verdict: audit.Deny}, false},
	} {
		if got := p.mark(tc.event).Asker == audit.BySelfTest; got != tc.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if !p.tries("llm.example", netip.Addr{}) || !p.tries("", netip.MustParseAddr("::ffff:1.1.1.1")) {
		t.Error("counts a probe")
	}
	p.end()
	p.until = time.Now().Add(-time.Second)
	if p.mark(own).Asker != audit.Agent || p.tries("example.com", netip.Addr{}) {
		t.Error("an event after the self-test is a probe's")
	}
}
