package plan

import (
	"net/netip"
	"strings"
	"testing"
)

// TestPlanObserve: observing changes what happens to addresses that no rule
// allows, and nothing that comes before.
func TestPlanObserve(t *testing.T) {
	c := Config{GuardUID: 64901, GuardGID: 48211, DNSPort4: 5353, DNSPort6: 5353, GatePort4: 5443, GatePort6: 5443, DropGroup: 4100,
		Deny: []Entry{{Prefix: netip.MustParsePrefix("192.0.2.0/24")}}}
	enforce, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	c.Observe = true
	observe, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(enforce.String(), "observe") || strings.Contains(enforce.String(), ObservedPrefix) {
		t.Error("a plan that does not observe does")
	}
	lines := func(p Plan, chain string) (out []string) {
		_, text, _ := strings.Cut(p.String(), "\tchain "+chain+" {\n")
		text, _, _ = strings.Cut(text, "\t}\n")
		return strings.Split(strings.TrimSpace(text), "\n")
	}
	had := map[string]bool{}
	for _, l := range lines(enforce, "output") {
		had[strings.TrimSpace(l)] = true
	}
	const anyFlow = "ct state established accept" // it may have begun by the rule that is added
	var added []string
	for _, l := range lines(observe, "output") {
		if l = strings.TrimSpace(l); !had[l] {
			added = append(added, l)
		}
		delete(had, l)
	}
	for _, l := range added {
		if !strings.Contains(l, "jump observe") && !strings.Contains(l, "@lease") && l != anyFlow {
			t.Errorf("added: %s", l)
		}
	}
	for l := range had { // around the gate, now only to leased addresses
		if !strings.Contains(l, "dport 443") && !strings.Contains(l, "dport 80") {
			t.Errorf("lost: %s", l)
		}
	}
	if got := strings.ReplaceAll(strings.Join(lines(observe, "input"), "\n"), "\t\t"+anyFlow+"\n", ""); got != strings.Join(lines(enforce, "input"), "\n") {
		t.Errorf("input differs in more than the flows that go on:\n%s", got)
	}
	out := lines(observe, "output")
	if !strings.Contains(out[len(out)-1], "jump refuse") {
		t.Errorf("the last rule is %s", out[len(out)-1])
	}
	for _, chain := range []string{"refuse", "forward", "postrouting", "to-guard"} {
		if a, b := lines(enforce, chain), lines(observe, chain); strings.Join(a, "\n") != strings.Join(b, "\n") {
			t.Errorf("%s differs:\n%s\n%s", chain, strings.Join(a, "\n"), strings.Join(b, "\n"))
		}
	}
	sealed, err := New(Config{Sealed: true, Observe: true})
	if err != nil || strings.Contains(sealed.String(), "observe") {
		t.Errorf("a sealed plan observes: %v", err)
	}
}
