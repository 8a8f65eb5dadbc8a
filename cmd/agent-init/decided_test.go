package main

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func ask(t *testing.T, b *grantBook, target string) grant {
	t.Helper()
	g, _, err := b.request(asker{target: target, reason: "to build", uid: 1000}, noon)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestDecidedRequestsStay: who asked finds what became of it, by whom and why.
func TestDecidedRequestsStay(t *testing.T) {
	var b grantBook
	granted, down, denied, forgotten := ask(t, &b, "a.example"), ask(t, &b, "b.example"), ask(t, &b, "c.example"), ask(t, &b, "d.example")
	if _, _, err := b.put(grantAllow, asker{target: "a.example", reason: "one build"}, granted.Number, time.Minute, noon); err != nil {
		t.Fatal(err)
	}
	if _, err := b.end(down.Number, decision{noon, 0, "use the mirror"}); err != nil {
		t.Fatal(err)
	}
	mustPut(t, &b, grantDeny, "c.example", 0)
	if _, err := b.end(down.Number, decision{}); err == nil {
		t.Error("a request is decided twice")
	}
	b.expire(noon.Add(requestLife))
	want := []struct {
		number uint32
		became outcome
		why    string
	}{{granted.Number, outcomeGranted, "one build"}, {down.Number, outcomeDown, "use the mirror"}, {denied.Number, outcomeDenied, ""}, {forgotten.Number, outcomeForgot, ""}}
	if len(b.decided) != len(want) {
		t.Fatalf("remembered: %+v", b.decided)
	}
	for i, w := range want {
		g := b.decided[i]
		if g.Number != w.number || g.Outcome != w.became || g.Reason != "to build" || g.Decided != nil && g.Decided.Reason != w.why || (g.Decided == nil) != (w.became == outcomeForgot) {
			t.Errorf("got %+v, %+v, want %+v", g, g.Decided, w)
		}
	}
	if got := filesOf(grantBook{list: append(b.list, b.decided...)}); strings.Contains(strings.Join(got, " "), "b.example") {
		t.Errorf("a request that was turned down is in force: %q", got)
	}
	if again := ask(t, &b, "b.example"); again.Number == down.Number {
		t.Error("a request that was turned down can't be made again")
	}
}

// TestDecidedRequestsAreFew: the agent asks for as long as it likes.
func TestDecidedRequestsAreFew(t *testing.T) {
	var b grantBook
	for i := range 3 * maxDecided {
		g := ask(t, &b, fmt.Sprintf("n%d.example", i))
		if _, err := b.end(g.Number, decision{}); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.decided) != maxDecided || b.decided[maxDecided-1].Target != fmt.Sprintf("n%d.example", 3*maxDecided-1) {
		t.Errorf("%d are remembered, the last is %+v", len(b.decided), b.decided[len(b.decided)-1])
	}
	before := b.clone()
	g := ask(t, &b, "x.example")
	if _, err := b.end(g.Number, decision{}); err != nil || before.decided[maxDecided-1].Target == "x.example" {
		t.Error("a change shows in a book that was kept", err)
	}
}

func TestGrantsShowDecisions(t *testing.T) {
	r := grantsReport{Grants: []grant{
		{Number: 4, Kind: grantRequest, Target: "b.example", Reason: "to lint", UID: 1000, Asked: 1, Made: noon, Outcome: outcomeDown, Decided: &decision{noon, 0, "use\u202e the mirror"}},
		{Number: 5, Kind: grantRequest, Target: "c.example", UID: 1000, Asked: 1, Made: noon, Outcome: outcomeForgot},
	}}
	var b strings.Builder
	if err := r.write(&b, noon); err != nil {
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

// TestExplainKnowsRequests: who looks why something is denied is told of a request.
func TestExplainKnowsRequests(t *testing.T) {
	p := publishedWith(t, "ok.example", nil)
	p.grants = []grant{
		{Number: 1, Kind: grantRequest, Target: "new.example:22"},
		{Number: 2, Kind: grantRequest, Target: "*.wild.example"},
		{Number: 3, Kind: grantRequest, Target: "192.0.2.7:5432"},
		{Number: 4, Kind: grantRequest, Target: "old.example", Outcome: outcomeDown, Decided: &decision{noon, 0, "no"}},
		{Number: 5, Kind: grantAllow, Target: "never.example"},
		{Number: 6, Kind: grantRequest, Target: "new.example", Outcome: outcomeDown, Decided: &decision{noon, 0, "no"}},
		{Number: 7, Kind: grantRequest, Target: "ok.example", Outcome: outcomeGranted, Decided: &decision{noon, 0, ""}},
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
		if err := explainSubject(p, s, noon).write(&b, noon, false); err != nil {
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
