package inspect

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/grant"
)

// TestExplainKnowsRequests: who looks why something is denied is told of a request.
func TestExplainKnowsRequests(t *testing.T) {
	p := publishedWith(t, "ok.example", nil)
	p.grants = []grant.Grant{
		{Number: 1, Kind: grant.Request, Target: "new.example:22"},
		{Number: 2, Kind: grant.Request, Target: "*.wild.example"},
		{Number: 3, Kind: grant.Request, Target: "192.0.2.7:5432"},
		{Number: 4, Kind: grant.Request, Target: "old.example", Outcome: "turned down", Decided: &grant.Decision{Time: noon, UID: 0, Reason: "no"}},
		{Number: 5, Kind: grant.Allow, Target: "never.example"},
		{Number: 6, Kind: grant.Request, Target: "new.example", Outcome: "turned down", Decided: &grant.Decision{Time: noon, UID: 0, Reason: "no"}},
		{Number: 7, Kind: grant.Request, Target: "ok.example", Outcome: "granted", Decided: &grant.Decision{Time: noon, UID: 0, Reason: ""}},
	}
	for target, want := range map[string]string{
		"new.example": "request 1, for new.example:22, waits: agent-init allow --request 1", "a.wild.example": "request 2,", "wild.example": "request 2,",
		"old.example": `request 4, for old.example, was turned down: "no"`, "192.0.2.7": "request 3,", "192.0.2.8": "", "never.example": "", "ok.example": "", "xwild.example": "",
	} {
		s, err := parseSubject(target)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := explainSubject(p, s, noon).Write(&b, false); err != nil {
			t.Fatal(err)
		}
		if want == "" && strings.Contains(b.String(), "asked") || !strings.Contains(b.String(), want) {
			t.Errorf("%s: want %q in\n%s", target, want, b.String())
		}
	}
	if isAbout("[2a0f::1]:22/tcp", subject{addr: netip.MustParseAddr("2a0f::2")}) || !isAbout("[2a0f::1]:22/tcp", subject{addr: netip.MustParseAddr("2a0f::1")}) {
		t.Error("addresses of IPv6 are told apart wrongly")
	}
}
