package main

import (
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/selftest"
)

func TestProbing(t *testing.T) {
	var p probing
	own := audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: "example.com"}
	if p.caused(own) {
		t.Error("hides an event before any self-test")
	}
	p.begin(selftest.DefaultPlan("example.com"))
	for name, tc := range map[string]struct {
		event audit.Event
		want  bool
	}{
		"probed name":       {own, true},
		"probed address":    {audit.Event{Kind: audit.Drop, Verdict: audit.Deny, IP: "169.254.169.254"}, true},
		"probed gate":       {audit.Event{Kind: audit.Connect, Verdict: audit.Deny, IP: "1.1.1.1"}, true},
		"other at the gate": {audit.Event{Kind: audit.Connect, Verdict: audit.Deny, IP: "192.0.2.1"}, false},
		"another name":      {audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: "evil.example"}, false},
		"another address":   {audit.Event{Kind: audit.Drop, Verdict: audit.Deny, IP: "192.0.2.1"}, false},
		"allowed":           {audit.Event{Kind: audit.DNS, Verdict: audit.Allow, Name: "example.com"}, false},
		"fault":             {audit.Event{Kind: audit.Guard, Verdict: audit.Fault}, false},
		"no address at all": {audit.Event{Kind: audit.Drop, Verdict: audit.Deny}, false},
	} {
		if got := p.caused(tc.event); got != tc.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	p.end()
	p.until = time.Now().Add(-time.Second)
	if p.caused(own) {
		t.Error("hides an event after the self-test")
	}
}
