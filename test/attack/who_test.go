package attack

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// counters are the guard's and the gate's counts of what the agent did.
func (w *world) counters() map[string]float64 {
	w.Helper()
	s, _ := w.status()
	guard, _ := s["guard"].(map[string]any)
	stats, _ := guard["stats"].(map[string]any)
	out := map[string]float64{}
	for _, name := range []string{"queries", "allowed", "denied", "passed", "refused", "drops"} {
		out[name], _ = stats[name].(float64)
	}
	return out
}

// TestSelfTestLeavesNoTrace: what a self-test tries is not taken for a wish of
// the agent's, whoever starts it: not by suggest, which would propose the very holes,
// nor by explain, the counters or the grants. The log has it, as the self-test's.
func TestSelfTestLeavesNoTrace(t *testing.T) {
	w := confine(t, "ok.test required\n", lab.BoxOptions{})
	w.lab.DNS.SetAddrs("example.com", "203.0.113.99")
	reported := func(what string) {
		t.Helper()
		// The guard reports its counts with each pong.
		before, _ := w.status()
		published, _ := before["published"].(string)
		if !eventually(time.Minute, func() bool { s, _ := w.status(); now, _ := s["published"].(string); return now > published }) {
			t.Fatal("nothing was published any more")
		}
		for name, n := range w.counters() {
			if n != 0 {
				t.Errorf("%s: %v %s", what, n, name)
			}
		}
	}
	nothing := func(what string) {
		t.Helper()
		if r := w.agentRuns("suggest"); !strings.Contains(r.Stdout, "nothing was denied") {
			t.Errorf("%s: suggested:\n%s", what, r.Stdout)
		}
		for _, target := range []string{"example.com", "1.1.1.1", "1.1.1.1:443", "169.254.169.254:80"} {
			var x struct {
				Denied struct{ Count float64 }
			}
			if r := w.agentRuns("explain", "--json", target); json.Unmarshal([]byte(r.Stdout), &x) != nil || x.Denied.Count != 0 {
				t.Errorf("%s: explain %s: %s", what, target, r.Stdout)
			}
		}
		if r := w.agentRuns("log", "--denied"); strings.Contains(r.Stdout, "example.com") && what != "by the agent" {
			t.Errorf("%s: log --denied shows %s", what, r.Stdout)
		}
		if r := w.agentRuns("grants"); !strings.Contains(r.Stdout, "nothing") {
			t.Errorf("%s: grants: %s", what, r.Stdout)
		}
	}
	nothing("at the start")
	reported("at the start")
	if r := w.root("agent-init", "selftest"); r.Code != 0 {
		t.Fatalf("selftest: %s", r)
	}
	nothing("by root")
	reported("by root")
	if n := len(w.auditOf(func(e event) bool { return e.By == "selftest" && e.Name == "example.com" })); n < 2 {
		t.Errorf("the log has %d lines of the two self-tests", n)
	}
	if r := w.agentRuns("selftest"); r.Code != 0 {
		t.Fatalf("selftest, as the agent: %s", r)
	}
	w.audited("the agent's own self-test", func(e event) bool { return e.Kind == "drop" && e.IP == "1.1.1.1" })
	nothing("by the agent")
	// What the agent does by itself counts.
	w.blocked("resolve", "evil.test")
	w.audited("the agent's own", func(e event) bool { return e.Name == "evil.test" })
	if r := w.agentRuns("suggest"); !strings.Contains(r.Stdout, "evil.test") || strings.Contains(r.Stdout, "example") {
		t.Errorf("suggested: %s", r.Stdout)
	}
}

// TestLogSaysWhoAsked: the log says of each name who asked for it, once for each look-up.
func TestLogSaysWhoAsked(t *testing.T) {
	w := confine(t, "ok.test\n*.cdn.test\n", lab.BoxOptions{})
	ahead := w.audited("what the guard looked up ahead", func(e event) bool { return e.Kind == "dns" && e.Name == "ok.test" })
	if ahead.By != "guard" || ahead.Comm != "" {
		t.Errorf("the guard's own: %+v", ahead)
	}
	w.lab.DNS.SetAddrs("*.cdn.test", "203.0.113.7", "2a0f:30::7")
	w.works("resolve", "a.cdn.test")
	w.works("http", "https://ok.test/")
	if own := w.audited("an allowed name", func(e event) bool { return e.Kind == "dns" && e.Name == "a.cdn.test" }); own.By != "" {
		t.Errorf("the agent's: %+v", own)
	}
	if c := w.audited("a connection", func(e event) bool { return e.Kind == "connect" && e.Name == "ok.test" }); c.By != "" {
		t.Errorf("the connection: %+v", c)
	}
	// The process is told where it can be had. Where the machine is too busy to look for it, nobody looks for a while.
	i := 0
	if !eventually(lab.Patience, func() bool {
		i++
		name := fmt.Sprintf("n%d.cdn.test", i)
		w.poke("dns", "-hold", "500ms", lab.Upstream4.String()+":53", name, "A")
		return w.audited("a name", func(e event) bool { return e.Kind == "dns" && e.Name == name }).Comm == "poke"
	}) {
		t.Errorf("of %d processes that asked, none was named", i)
	}
	w.blocked("resolve", "evil.test")
	w.audited("a denied name", func(e event) bool { return e.Name == "evil.test" })
	w.blocked("resolve", "last.test")
	w.audited("what came last", func(e event) bool { return e.Name == "last.test" })
	for _, name := range []string{"ok.test", "a.cdn.test", "evil.test"} {
		if lines := w.audit(func(e event) bool { return e.Kind == "dns" && e.Name == name }); len(lines) != 1 {
			t.Errorf("%s stands in the log %d times: %+v", name, len(lines), lines)
		}
	}
}
