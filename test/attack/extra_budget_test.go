package attack

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// TestLabX33BudgetOfGuards: what may be asked below a wildcard is one budget,
// however many guards come and go; and thousands of connections that all have the
// keeper asked don't end the guard.
func TestLabX33BudgetOfGuards(t *testing.T) {
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
	names := map[string]bool{}
	for _, q := range l.Queries("cdn.test") {
		names[q.Name] = true
	}
	took := time.Since(begun)
	// As many at once, and as many a minute, and a few that a test's clock may be off.
	most := 120 + int(took.Minutes()*120) + 5
	t.Logf("%d new names by %d guards in %v, at most %d", len(names), guards+1, took.Round(time.Second), most)
	if len(names) > most {
		t.Errorf("%d new names were asked for in %v, more than %d", len(names), took, most)
	}
	if len(names) < 60 {
		t.Errorf("proves nothing: %d names", len(names))
	}
}
