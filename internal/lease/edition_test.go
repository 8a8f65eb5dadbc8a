package lease

import (
	"testing"
	"time"
)

// TestEditionOfLedger: whatever ends a lease before its time makes a new
// edition, and nothing else does.
func TestEditionOfLedger(t *testing.T) {
	l, c := newTestLedger(t, "domains: [a.example, b.example]\nlimits: {addrs_per_name: 2}\n")
	was := l.edition.Load()
	changed := func(what string, want bool) {
		t.Helper()
		if got := l.edition.Load(); (got != was) != want {
			t.Errorf("%s: edition %d after %d", what, got, was)
		}
		was = l.edition.Load()
	}
	left := func(name, addr string, want time.Duration) {
		t.Helper()
		got, edition := l.LeasedTo(name, tcp(addr, 443))
		if got != want || edition != was {
			t.Errorf("%s at %s: %v left in edition %d, want %v in %d", name, addr, got, edition, want, was)
		}
	}
	l.Lease("a.example", addrs("192.0.2.1", "192.0.2.2"), time.Minute)
	changed("a lease", false)
	left("a.example", "192.0.2.1", time.Minute)
	left("b.example", "192.0.2.1", 0)
	c.Now = c.Now.Add(time.Second)
	l.Lease("a.example", addrs("192.0.2.1"), 10*time.Second)
	changed("a shorter lease", false)
	left("a.example", "192.0.2.1", 59*time.Second) // is no shorter
	l.Lease("a.example", addrs("192.0.2.2"), time.Hour)
	changed("a longer lease", false)
	left("a.example", "192.0.2.2", MaxLease)
	l.Renew(used(tcp("192.0.2.1", 443)), time.Hour, 2*time.Minute)
	changed("renewal", false)
	left("a.example", "192.0.2.1", 2*time.Minute)
	l.Lease("a.example", addrs("192.0.2.3"), time.Minute)
	changed("one address too many", true)
	left("a.example", "192.0.2.1", 0)
	c.Now = c.Now.Add(time.Minute)
	left("a.example", "192.0.2.3", 0)
	l.Sweep()
	changed("the end of a lease", false)
	l.Lease("b.example", addrs("192.0.2.1"), time.Minute)
	l.RevokeName("b.example")
	changed("a name that is closed", true)
	l.Adopt(parsePolicy(t, "domains: [a.example]"))
	changed("a policy", true)
}
