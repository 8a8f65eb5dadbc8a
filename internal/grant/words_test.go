package grant

import (
	"strings"
	"testing"
	"time"
)

func TestGrantsShowDecisions(t *testing.T) {
	r := Report{Grants: []Grant{
		{Number: 4, Kind: Request, Target: "b.example", Reason: "to lint", UID: 1000, Asked: 1, Made: noon, Outcome: outcomeDown, Decided: &Decision{noon, 0, "use\u202e the mirror"}},
		{Number: 5, Kind: Request, Target: "c.example", UID: 1000, Asked: 1, Made: noon, Outcome: outcomeForgot},
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
