package record

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// counters are the guard's and the gate's counts of what the agent did.
func counters(w *rig.World) map[string]float64 {
	w.Helper()
	s, _ := w.Status()
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
	w := rig.Confine(t, "ok.test required\n", lab.BoxOptions{})
	w.Lab.DNS.SetAddrs("example.com", "203.0.113.99")
	reported := func(what string) {
		t.Helper()
		// The guard reports its counts with each pong.
		before, _ := w.Status()
		published, _ := before["published"].(string)
		if !rig.Eventually(time.Minute, func() bool { s, _ := w.Status(); now, _ := s["published"].(string); return now > published }) {
			t.Fatal("nothing was published any more")
		}
		for name, n := range counters(w) {
			if n != 0 {
				t.Errorf("%s: %v %s", what, n, name)
			}
		}
	}
	nothing := func(what string) {
		t.Helper()
		if r := w.AgentRuns("suggest"); !strings.Contains(r.Stdout, "nothing was denied") {
			t.Errorf("%s: suggested:\n%s", what, r.Stdout)
		}
		for _, target := range []string{"example.com", "1.1.1.1", "1.1.1.1:443", "169.254.169.254:80"} {
			var x struct {
				Denied struct{ Count float64 }
			}
			if r := w.AgentRuns("explain", "--json", target); json.Unmarshal([]byte(r.Stdout), &x) != nil || x.Denied.Count != 0 {
				t.Errorf("%s: explain %s: %s", what, target, r.Stdout)
			}
		}
		if r := w.AgentRuns("log", "--denied"); strings.Contains(r.Stdout, "example.com") && what != "by the agent" {
			t.Errorf("%s: log --denied shows %s", what, r.Stdout)
		}
		if r := w.AgentRuns("grants"); !strings.Contains(r.Stdout, "nothing") {
			t.Errorf("%s: grants: %s", what, r.Stdout)
		}
	}
	nothing("at the start")
	reported("at the start")
	if r := w.Root("agent-init", "selftest"); r.Code != 0 {
		t.Fatalf("selftest: %s", r)
	}
	nothing("by root")
	reported("by root")
	if n := len(w.AuditOf(func(e rig.Event) bool { return e.By == "selftest" && e.Name == "example.com" })); n < 2 {
		t.Errorf("the log has %d lines of the two self-tests", n)
	}
	if r := w.AgentRuns("selftest"); r.Code != 0 {
		t.Fatalf("selftest, as the agent: %s", r)
	}
	w.Audited("the agent's own self-test", func(e rig.Event) bool { return e.Kind == "drop" && e.IP == "1.1.1.1" })
	nothing("by the agent")
	// What the agent does by itself counts.
	w.Blocked("resolve", "evil.test")
	w.Audited("the agent's own", func(e rig.Event) bool { return e.Name == "evil.test" })
	if r := w.AgentRuns("suggest"); !strings.Contains(r.Stdout, "evil.test") || strings.Contains(r.Stdout, "example") {
		t.Errorf("suggested: %s", r.Stdout)
	}
}

// TestLogSaysWhoAsked: the log says of each name who asked for it, once for each look-up.
func TestLogSaysWhoAsked(t *testing.T) {
	w := rig.Confine(t, "ok.test\n*.cdn.test\n", lab.BoxOptions{})
	ahead := w.Audited("what the guard looked up ahead", func(e rig.Event) bool { return e.Kind == "dns" && e.Name == "ok.test" })
	if ahead.By != "guard" || ahead.Comm != "" {
		t.Errorf("the guard's own: %+v", ahead)
	}
	w.Lab.DNS.SetAddrs("*.cdn.test", "203.0.113.7", "2a0f:30::7")
	w.Works("resolve", "a.cdn.test")
	w.Works("http", "https://ok.test/")
	if own := w.Audited("an allowed name", func(e rig.Event) bool { return e.Kind == "dns" && e.Name == "a.cdn.test" }); own.By != "" {
		t.Errorf("the agent's: %+v", own)
	}
	if c := w.Audited("a connection", func(e rig.Event) bool { return e.Kind == "connect" && e.Name == "ok.test" }); c.By != "" {
		t.Errorf("the connection: %+v", c)
	}
	// The process is told where it can be had. Where the machine is too busy to look for it, nobody looks for a while.
	i := 0
	if !rig.Eventually(lab.Patience, func() bool {
		i++
		name := fmt.Sprintf("n%d.cdn.test", i)
		w.Poke("dns", "-hold", "500ms", lab.Upstream4.String()+":53", name, "A")
		return w.Audited("a name", func(e rig.Event) bool { return e.Kind == "dns" && e.Name == name }).Comm == "poke"
	}) {
		t.Errorf("of %d processes that asked, none was named", i)
	}
	w.Blocked("resolve", "evil.test")
	w.Audited("a denied name", func(e rig.Event) bool { return e.Name == "evil.test" })
	w.Blocked("resolve", "last.test")
	w.Audited("what came last", func(e rig.Event) bool { return e.Name == "last.test" })
	for _, name := range []string{"ok.test", "a.cdn.test", "evil.test"} {
		if lines := w.Audit(func(e rig.Event) bool { return e.Kind == "dns" && e.Name == name }); len(lines) != 1 {
			t.Errorf("%s stands in the log %d times: %+v", name, len(lines), lines)
		}
	}
}
