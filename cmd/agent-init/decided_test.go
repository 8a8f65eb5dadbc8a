package main

import (
	"fmt"
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
