package grant

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab/golden"
)

func TestGrantsShowDecisions(t *testing.T) {
	r := Report{Grants: []Grant{
		{Number: 4, Kind: Request, Target: "b.example", Reason: "to lint", UID: 1000, Asked: 1, Made: noon, Outcome: WasTurnedDown, Decided: &Decision{Time: noon, Reason: "use\u202e the mirror"}},
		{Number: 5, Kind: Request, Target: "c.example", UID: 1000, Asked: 1, Made: noon, Outcome: WasForgotten},
	}}
	var b strings.Builder
	if err := r.Write(&b, noon); err != nil {
		t.Fatal(err)
	}
	at := noon.Local().Format(time.TimeOnly)
	for _, want := range []string{"turned down", "forgotten", `because "to lint"`, "      turned down by uid 0, " + at + `: "use? the mirror"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("want %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "--request") {
		t.Errorf("what is decided is to be decided:\n%s", b.String())
	}
}

// TestGrantsScreens: what people see, by the width of their terminal.
func TestGrantsScreens(t *testing.T) {
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.Local)
	r := Report{Grants: []Grant{
		{Number: 3, Kind: Allow, Target: "registry.example.com:8443 tls", Made: noon, Expires: noon.Add(90 * time.Minute)},
		{Number: 4, Kind: Request, Target: "a-name-that-is-rather-long.of-a-service.internal.corp.example:8443", Reason: strings.Repeat("to build what was asked for ", 4), UID: 1000, Asked: 12, Made: noon},
		{Number: 5, Kind: Deny, Target: "paste.example", Made: noon},
		{Number: 12, Kind: Request, Target: "b.example", UID: 1000, Asked: 1, Made: noon, Outcome: WasTurnedDown, Decided: &Decision{Time: noon, Reason: "use the mirror"}},
	}}
	golden.Screens(t, "grants.screens.txt", "      ", func(w io.Writer) error { return r.Write(w, noon) })
}
