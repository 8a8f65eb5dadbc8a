package faults

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestBudgetHoldsAcrossGuards: what may be asked below a wildcard is one budget,
// however many guards come and go; and thousands of connections that all have the
// keeper asked don't end the guard.
func TestBudgetHoldsAcrossGuards(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	w := rig.ConfineIn(t, l, rig.Allowlist, lab.BoxOptions{})
	ok4, _ := rig.Named("ok.test")
	w.Works("resolve", "ok.test")

	// The hello of a name that is allowed, and not leased at that address: each is asked about.
	var floods []*lab.Process
	for range 2 {
		floods = append(floods, w.Launch("poke", "tls", "-insecure", "-sni", "unleased.cdn.test", "-c", "4000", "-timeout", "20s", rig.At(ok4, 443)))
	}
	for _, f := range floods {
		f.Wait(2 * time.Minute)
	}
	if s, _ := w.Status(); s["guard"].(map[string]any)["restarts"] != 0.0 {
		t.Errorf("the guard was ended: %v", s["guard"])
	}

	begun := time.Now()
	const guards = 4
	for i := range guards {
		w.Poke("dns", "-n", "400", "-c", "16", "-timeout", "1s", rig.At(lab.Upstream4, 53), fmt.Sprintf("g%dn{n}.cdn.test", i), "A")
		g := w.Guard()
		g.Signal(t, unix.SIGKILL)
		if !rig.Eventually(time.Minute, func() bool { _, code := w.Status(); return code == 0 && w.Guard().Pid != g.Pid }) {
			t.Fatal("no guard comes after it")
		}
	}
	withinBudget(t, l, begun, fmt.Sprintf("%d guards", guards+1))
}

// withinBudget fails the test if more new names than one wildcard may have were asked
// for since then.
func withinBudget(t *testing.T, l *lab.Lab, begun time.Time, how string) {
	t.Helper()
	names := map[string]bool{}
	for _, q := range l.Queries("cdn.test") {
		names[q.Name] = true
	}
	took := time.Since(begun)
	// As many at once, and as many a minute, and a few that a test's clock may be off.
	most := 120 + int(took.Minutes()*120) + 5
	t.Logf("%s: %d new names in %v, at most %d", how, len(names), took.Round(time.Second), most)
	if len(names) > most {
		t.Errorf("%d new names were asked for in %v, more than %d", len(names), took, most)
	}
	if len(names) < 60 {
		t.Errorf("proves nothing: %d names", len(names))
	}
}

var _ = rig.Also(TestBudgetHoldsUnderAttack, rig.UnderStress)

// TestBudgetHoldsUnderAttack: the same while thousands of connections have the keeper
// asked, for 45 s under stress.
func TestBudgetHoldsUnderAttack(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	w := rig.ConfineIn(t, l, rig.Allowlist, lab.BoxOptions{})
	ok4, _ := rig.Named("ok.test")
	w.Works("resolve", "ok.test")
	begun := time.Now()
	for round := 0; round == 0 || time.Since(begun) < rig.Often(0, 45*time.Second); round++ {
		var floods []*lab.Process
		for range 2 {
			floods = append(floods, w.Launch("poke", "tls", "-insecure", "-sni", "unleased.cdn.test", "-c", "4000", "-timeout", "10s", rig.At(ok4, 443)))
		}
		w.Poke("dns", "-n", "1000", "-c", "16", "-timeout", "1s", rig.At(lab.Upstream4, 53), fmt.Sprintf("r%dn{n}.cdn.test", round), "A")
		for _, f := range floods {
			f.Wait(2 * time.Minute)
		}
	}
	s, _ := w.Status()
	withinBudget(t, l, begun, fmt.Sprintf("under attack, with %v restarts of the guard", s["guard"].(map[string]any)["restarts"]))
}
