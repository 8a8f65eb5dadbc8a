package lease

import (
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/firewall"
)

func used(es ...firewall.Element) map[firewall.Element]bool {
	out := map[firewall.Element]bool{}
	for _, e := range es {
		out[e] = true
	}
	return out
}

// TestLedgerRenewsThatPort: what answers on one port keeps no other open.
func TestLedgerRenewsThatPort(t *testing.T) {
	l, c := newTestLedger(t, "domains: [a.example.com:443, a.example.com:22]")
	l.Lease("a.example.com", addrs("192.0.2.1"), time.Minute)
	if leases := l.Renew(used(tcp("192.0.2.1", 443)), time.Hour, 2*time.Minute); len(leases) != 1 {
		t.Fatalf("renewed %v", leases)
	}
	c.Now = c.Now.Add(90 * time.Second)
	l.Sweep()
	if !l.Holds(tcp("192.0.2.1", 443)) || l.Holds(tcp("192.0.2.1", 22)) {
		t.Error("the used port is closed, or the unused one is not")
	}
}

// TestLedgerRenewalEnds: however much is sent, an address that no server has named for
// a day is closed to what is new. What is under way may go on while its name is allowed.
func TestLedgerRenewalEnds(t *testing.T) {
	l, c := newTestLedger(t, "domains: [a.example.com:443]")
	e := tcp("192.0.2.1", 443)
	l.Lease("a.example.com", addrs("192.0.2.1"), time.Minute)
	began := c.Now
	for c.Now.Sub(began) < renewedFor-time.Minute {
		l.Renew(used(e), RenewWindow, RenewFor)
		c.Now = c.Now.Add(RenewEvery)
		l.Sweep()
		if !l.Holds(e) {
			t.Fatalf("closed after %v", c.Now.Sub(began))
		}
	}
	for c.Now.Sub(began) <= renewedFor {
		l.Renew(used(e), RenewWindow, RenewFor)
		c.Now = c.Now.Add(RenewEvery)
		l.Sweep()
	}
	if l.Holds(e) {
		t.Error("still open after a day")
	}
	if !l.Knows(e) {
		t.Error("what is under way would end with the next change, whatever that is")
	}
	l.Adopt(parsePolicy(t, "domains: [a.example.com:443, b.example.com:443]"))
	if !l.Knows(e) {
		t.Error("a change of something else ends it")
	}
	l.Adopt(parsePolicy(t, "domains: [b.example.com:443]"))
	if l.Knows(e) {
		t.Error("lives on without its name")
	}
}

// TestLedgerForgetsLapsed: what nothing is under way to is forgotten, and what is
// remembered is bounded.
func TestLedgerForgetsLapsed(t *testing.T) {
	l, c := newTestLedger(t, "domains: [a.example.com:443]")
	l.Lease("a.example.com", addrs("192.0.2.1", "192.0.2.2"), time.Minute)
	c.Now = c.Now.Add(time.Hour)
	l.Sweep()
	one, two := tcp("192.0.2.1", 443), tcp("192.0.2.2", 443)
	l.ForgetLapsed(used(one), c.Now.Add(-time.Second))
	if !l.Knows(two) {
		t.Error("forgotten by a look that was begun before it lapsed: it may have been used since")
	}
	l.ForgetLapsed(used(one), c.Now.Add(time.Second))
	if !l.Knows(one) || l.Knows(two) {
		t.Errorf("remembered: %v", l.lapsed)
	}
	for range 2 * maxLapsedNames {
		l.lapsed.add(one, time.Now().String(), 0, 0)
	}
	if n := len(l.lapsed[one].names); n > maxLapsedNames {
		t.Errorf("%d names", n)
	}
}
