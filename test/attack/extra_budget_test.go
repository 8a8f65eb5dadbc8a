package attack

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// TestBudgetHoldsAcrossGuards: what may be asked below a wildcard is one budget,
// however many guards come and go; and thousands of connections that all have the
// keeper asked don't end the guard.
func TestBudgetHoldsAcrossGuards(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	w := confineIn(t, l, allowlist, lab.BoxOptions{})
	ok4, _ := named("ok.test")
	w.works("resolve", "ok.test")

	// The hello of a name that is allowed, and not leased at that address: each is asked about.
	var floods []*lab.Process
	for range 2 {
		floods = append(floods, w.launch("poke", "tls", "-insecure", "-sni", "unleased.cdn.test", "-c", "4000", "-timeout", "20s", at(ok4, 443)))
	}
	for _, f := range floods {
		f.Wait(2 * time.Minute)
	}
	if s, _ := w.status(); s["guard"].(map[string]any)["restarts"] != 0.0 {
		t.Errorf("the guard was ended: %v", s["guard"])
	}

	begun := time.Now()
	const guards = 4
	for i := range guards {
		w.poke("dns", "-n", "400", "-c", "16", "-timeout", "1s", at(lab.Upstream4, 53), fmt.Sprintf("g%dn{n}.cdn.test", i), "A")
		g := w.guard()
		g.signal(t, unix.SIGKILL)
		if !eventually(time.Minute, func() bool { _, code := w.status(); return code == 0 && w.guard().pid != g.pid }) {
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

var _ = also(TestBudgetHoldsUnderAttack, underStress)

// TestBudgetHoldsUnderAttack: the same while thousands of connections have the keeper
// asked, for 45 s under stress.
func TestBudgetHoldsUnderAttack(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	w := confineIn(t, l, allowlist, lab.BoxOptions{})
	ok4, _ := named("ok.test")
	w.works("resolve", "ok.test")
	begun := time.Now()
	for round := 0; round == 0 || time.Since(begun) < often(0, 45*time.Second); round++ {
		var floods []*lab.Process
		for range 2 {
			floods = append(floods, w.launch("poke", "tls", "-insecure", "-sni", "unleased.cdn.test", "-c", "4000", "-timeout", "10s", at(ok4, 443)))
		}
		w.poke("dns", "-n", "1000", "-c", "16", "-timeout", "1s", at(lab.Upstream4, 53), fmt.Sprintf("r%dn{n}.cdn.test", round), "A")
		for _, f := range floods {
			f.Wait(2 * time.Minute)
		}
	}
	s, _ := w.status()
	withinBudget(t, l, begun, fmt.Sprintf("under attack, with %v restarts of the guard", s["guard"].(map[string]any)["restarts"]))
}
