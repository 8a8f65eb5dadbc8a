package grant

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func ask(t *testing.T, b *Book, target string) Grant {
	t.Helper()
	g, _, err := b.Request(Grant{Target: target, Reason: "to build", UID: 1000}, noon)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestDecidedRequestsStay: who asked finds what became of it, by whom and why.
func TestDecidedRequestsStay(t *testing.T) {
	var b Book
	granted, down, denied, forgotten := ask(t, &b, "a.example"), ask(t, &b, "b.example"), ask(t, &b, "c.example"), ask(t, &b, "d.example")
	if _, _, err := b.Put(Grant{Number: granted.Number, Kind: Allow, Target: "a.example", Reason: "one build"}, time.Minute, noon); err != nil {
		t.Fatal(err)
	}
	if _, err := b.End(down.Number, Decision{Time: noon, Reason: "use the mirror"}); err != nil {
		t.Fatal(err)
	}
	mustPut(t, &b, Deny, "c.example", 0)
	if _, err := b.End(down.Number, Decision{}); err == nil {
		t.Error("a request is decided twice")
	}
	b.Expire(noon.Add(RequestLife))
	want := []struct {
		number uint32
		became Outcome
		why    string
	}{{granted.Number, WasGranted, "one build"}, {down.Number, WasTurnedDown, "use the mirror"}, {denied.Number, WasDenied, ""}, {forgotten.Number, WasForgotten, ""}}
	if len(b.Decided) != len(want) {
		t.Fatalf("remembered: %+v", b.Decided)
	}
	for i, w := range want {
		g := b.Decided[i]
		if g.Number != w.number || g.Outcome != w.became || g.Reason != "to build" || g.Decided != nil && g.Decided.Reason != w.why || (g.Decided == nil) != (w.became == WasForgotten) {
			t.Errorf("got %+v, %+v, want %+v", g, g.Decided, w)
		}
	}
	if got := filesOf(Book{List: append(b.List, b.Decided...)}); strings.Contains(strings.Join(got, " "), "b.example") {
		t.Errorf("a request that was turned down is in force: %q", got)
	}
	if again := ask(t, &b, "b.example"); again.Number == down.Number {
		t.Error("a request that was turned down can't be made again")
	}
}

// TestDecidedRequestsAreFew: the agent asks for as long as it likes.
func TestDecidedRequestsAreFew(t *testing.T) {
	var b Book
	for i := range 3 * maxDecided {
		g := ask(t, &b, fmt.Sprintf("n%d.example", i))
		if _, err := b.End(g.Number, Decision{}); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.Decided) != maxDecided || b.Decided[maxDecided-1].Target != fmt.Sprintf("n%d.example", 3*maxDecided-1) {
		t.Errorf("%d are remembered, the last is %+v", len(b.Decided), b.Decided[len(b.Decided)-1])
	}
	before := b.Clone()
	g := ask(t, &b, "x.example")
	if _, err := b.End(g.Number, Decision{}); err != nil || before.Decided[maxDecided-1].Target == "x.example" {
		t.Error("a change shows in a book that was kept", err)
	}
}

// TestTurnDownOnlyRequests: who turns down what they saw waiting ends nothing that others made of it meanwhile, such as a
// denial, which has the request's number.
func TestTurnDownOnlyRequests(t *testing.T) {
	var b Book
	denied, granted, down := ask(t, &b, "a.example"), ask(t, &b, "b.example"), ask(t, &b, "c.example")
	for kind, g := range map[Kind]Grant{Deny: denied, Allow: granted} {
		if _, _, err := b.Put(Grant{Number: g.Number, Kind: kind, Target: g.Target}, 0, noon); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range []Grant{denied, granted, {Number: down.Number, Target: "a.example"}, {Number: 9, Target: "a.example"}, {}} {
		if _, err := b.TurnDown(g.Number, g.Target, Decision{}); err == nil || len(b.List) != 3 {
			t.Errorf("%d, %q: %v", g.Number, g.Target, err)
		}
	}
	if g, err := b.TurnDown(down.Number, down.Target, Decision{}); err != nil || g.Number != down.Number || len(b.List) != 2 {
		t.Errorf("%+v, %v", g, err)
	}
}
