package lease

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/firewall"
)

// clock stands still until a test moves it.
type clock struct{ Now time.Time }

func newTestLedger(t testing.TB, text string) (*Ledger, *clock) {
	c := &clock{Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	l := New(parsePolicy(t, text), &wire.Edition{Uint64: new(atomic.Uint64)})
	l.Now, l.began = func() time.Time { return c.Now }, c.Now
	return l, c
}

// tcp is what a name without words opens.
func tcp(addr string, port uint16) firewall.Element {
	e := firewall.Element{Addr: netip.MustParseAddr(addr), Proto: 6, Port: port}
	if port == 80 || port == 443 {
		e.For = firewall.Gated
	}
	return e
}

func TestLedgerGrant(t *testing.T) {
	l, _ := newTestLedger(t, `domains: [api.example.com, "*.cdn.example.net:8443", "db.example.org:5432 private", "!bad.cdn.example.net"]`)
	for name, tc := range map[string]struct {
		name  string
		addrs []netip.Addr
		open  []firewall.Element
	}{
		"default ports":          {"api.example.com", addrs("192.0.2.1"), []firewall.Element{tcp("192.0.2.1", 80), tcp("192.0.2.1", 443)}},
		"case and dot":           {"API.Example.com.", addrs("198.51.100.7"), []firewall.Element{tcp("198.51.100.7", 80), tcp("198.51.100.7", 443)}},
		"wildcard with a port":   {"x.cdn.example.net", addrs("2001:db8::1"), []firewall.Element{tcp("2001:db8::1", 8443)}},
		"private where said":     {"db.example.org", addrs("10.0.0.5"), []firewall.Element{tcp("10.0.0.5", 5432)}},
		"private elsewhere":      {"api.example.com", addrs("10.0.0.5"), nil},
		"metadata":               {"db.example.org", addrs("169.254.169.254"), nil},
		"loopback":               {"api.example.com", addrs("127.0.0.1", "::1"), nil},
		"not allowed":            {"evil.example.com", addrs("192.0.2.1"), nil},
		"denied below wildcard":  {"bad.cdn.example.net", addrs("192.0.2.9"), nil},
		"no name":                {"", addrs("192.0.2.1"), nil},
		"same address repeated":  {"api.example.com", addrs("203.0.113.1", "203.0.113.1"), []firewall.Element{tcp("203.0.113.1", 80), tcp("203.0.113.1", 443)}},
		"only the good of a mix": {"api.example.com", addrs("127.0.0.1", "203.0.113.2"), []firewall.Element{tcp("203.0.113.2", 80), tcp("203.0.113.2", 443)}},
	} {
		t.Run(name, func(t *testing.T) {
			open, admitted := l.Lease(tc.name, tc.addrs, time.Minute)
			var got []firewall.Element
			for _, o := range open {
				got = append(got, o.Element)
				if !slices.Contains(admitted, o.Addr) {
					t.Errorf("opens %v, and does not say so", o.Addr)
				}
				if !l.Holds(o.Element) {
					t.Errorf("opens %v without booking it", o.Element)
				}
			}
			slices.SortFunc(got, func(a, b firewall.Element) int { return int(a.Port) - int(b.Port) })
			if !slices.Equal(got, tc.open) {
				t.Errorf("got %v, want %v", got, tc.open)
			}
		})
	}
}

// TestLedgerShares: an answer that is stuffed with addresses costs its own name
// only, and wildcard names together never take the room of the others.
func TestLedgerShares(t *testing.T) {
	l, c := newTestLedger(t, "domains: [ok.example.com:443, '*.wild.example.net:443']\nlimits: {leases: 1000}")
	if _, admitted := l.Lease("ok.example.com", addrs("192.0.2.1"), time.Minute); len(admitted) != 1 {
		t.Fatal("the honest name has no lease")
	}
	for i := range 3000 {
		a := netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)})
		l.Lease(fmt.Sprintf("n%d.wild.example.net", i), []netip.Addr{a}, time.Minute)
	}
	if _, n := l.Counts(); n > 501 {
		t.Errorf("%d elements, wildcards may take 500", n)
	}
	if _, admitted := l.Lease("ok.example.com", addrs("192.0.2.2"), time.Minute); len(admitted) != 1 {
		t.Error("wildcard names pushed an exact name out")
	}

	// Many addresses for one name: the oldest give way.
	perName := l.perName
	for i := range 3 * perName {
		c.Now = c.Now.Add(time.Millisecond)
		_, admitted := l.Lease("ok.example.com", []netip.Addr{netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})}, time.Minute)
		if len(admitted) != 1 {
			t.Fatalf("address %d was refused", i)
		}
	}
	if got := len(l.names["ok.example.com"].ends()); got != perName {
		t.Errorf("the name holds %d addresses, limit %d", got, perName)
	}
	many := make([]netip.Addr, 4000)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{203, 1, byte(i >> 8), byte(i)})
	}
	if _, admitted := l.Lease("ok.example.com", many, time.Minute); len(admitted) != perName {
		t.Errorf("%d of a stuffed answer were admitted, limit %d", len(admitted), perName)
	}
}

// TestLedgerSharedAddress: two names on one address; the one that goes does not
// take the address along.
func TestLedgerSharedAddress(t *testing.T) {
	l, c := newTestLedger(t, "domains: [a.example.com:443, b.example.com:443]")
	l.Lease("a.example.com", addrs("192.0.2.1"), time.Minute)
	open, _ := l.Lease("b.example.com", addrs("192.0.2.1"), time.Second)
	if len(open) != 1 || open[0].TTL != time.Minute {
		t.Errorf("the shorter lease shortens the longer: %v", open)
	}
	if closed := l.Adopt(parsePolicy(t, "domains: [b.example.com:443]")); len(closed) != 0 {
		t.Errorf("closed %v, which b.example.com still holds", closed)
	}
	if closed := l.Adopt(parsePolicy(t, "domains: []")); !slices.Equal(closed, []firewall.Element{tcp("192.0.2.1", 443)}) {
		t.Errorf("closed %v", closed)
	}
	c.Now = c.Now.Add(time.Hour)
	l.Sweep()
	if names, elements := l.Counts(); names+elements != 0 {
		t.Errorf("%d names and %d elements left", names, elements)
	}
}

func TestLedgerRenewsWhatIsUsed(t *testing.T) {
	l, c := newTestLedger(t, "domains: [a.example.com:443, b.example.com:443]")
	l.Lease("a.example.com", addrs("192.0.2.1"), time.Minute)
	l.Lease("b.example.com", addrs("192.0.2.2"), time.Minute)
	c.Now = c.Now.Add(30 * time.Second)
	if early := l.Renew(used(tcp("192.0.2.1", 443)), 20*time.Second, 2*time.Minute); len(early) != 0 {
		t.Fatalf("renewed before it is due: %v", early)
	}
	leases := l.Renew(used(tcp("192.0.2.1", 443)), 45*time.Second, 2*time.Minute)
	if len(leases) != 1 || leases[0].Element != tcp("192.0.2.1", 443) || leases[0].TTL != 2*time.Minute {
		t.Fatalf("renewed %v", leases)
	}
	c.Now = c.Now.Add(45 * time.Second)
	l.Sweep()
	if !l.Holds(tcp("192.0.2.1", 443)) || l.Holds(tcp("192.0.2.2", 443)) {
		t.Error("the used lease is gone, or the unused one is not")
	}
}

// TestLedgerRenewalShortensNothing: where two names share an address, what one of
// them needs for a little longer is not all that the other was promised.
func TestLedgerRenewalShortensNothing(t *testing.T) {
	l, c := newTestLedger(t, "domains: [long.example.com:443, short.example.com:443]")
	shared := tcp("192.0.2.1", 443)
	l.Lease("long.example.com", addrs("192.0.2.1"), 6*time.Minute)
	l.Lease("short.example.com", addrs("192.0.2.1"), time.Minute)
	c.Now = c.Now.Add(30 * time.Second)
	for _, lease := range l.Renew(used(shared), time.Hour, 2*time.Minute) {
		if lease.TTL != 330*time.Second {
			t.Errorf("%v is given %v, and was promised for 5m30s", lease.Element, lease.TTL)
		}
	}
	if got := l.Leases(); len(got) != 1 || got[0].TTL != 330*time.Second {
		t.Errorf("the book has %v", got)
	}
}

// TestLedgerLeasedTo: the name gate is told how long a lease of that very name lasts, and what ends one before its time
// makes a new edition; nothing else does.
func TestLedgerLeasedTo(t *testing.T) {
	l, c := newTestLedger(t, "domains: [a.example, b.example]\nlimits: {addrs_per_name: 2}\n")
	was := l.edition.Load()
	changed := func(what string, want bool) {
		t.Helper()
		if got := l.edition.Load(); (got != was) != want {
			t.Errorf("%s: edition %d after %d", what, got, was)
		}
		was = l.edition.Load()
	}
	left := func(name, addr string, port uint16, want time.Duration) {
		t.Helper()
		if got, edition := l.LeasedTo(name, tcp(addr, port)); got != want || edition != was {
			t.Errorf("%s at %s: %v left in edition %d, want %v in %d", name, addr, got, edition, want, was)
		}
	}
	l.Lease("a.example", addrs("192.0.2.1", "192.0.2.2"), time.Minute)
	changed("a lease", false)
	left("a.example", "192.0.2.1", 443, time.Minute)
	left("a.example", "192.0.2.1", 22, 0)
	left("a.example", "192.0.2.3", 443, 0)
	left("b.example", "192.0.2.1", 443, 0)
	c.Now = c.Now.Add(time.Second)
	l.Lease("a.example", addrs("192.0.2.1"), 10*time.Second)
	changed("a shorter lease", false)
	left("a.example", "192.0.2.1", 443, 59*time.Second) // is no shorter
	l.Lease("a.example", addrs("192.0.2.2"), time.Hour)
	changed("a longer lease", false)
	left("a.example", "192.0.2.2", 443, MaxLease)
	l.Renew(used(tcp("192.0.2.1", 443)), time.Hour, 2*time.Minute)
	changed("renewal", false)
	left("a.example", "192.0.2.1", 443, 2*time.Minute)
	l.Lease("a.example", addrs("192.0.2.3"), time.Minute)
	changed("one address too many", true)
	left("a.example", "192.0.2.1", 443, 0)
	c.Now = c.Now.Add(time.Minute)
	left("a.example", "192.0.2.3", 443, 0) // whenever the book is swept
	l.Sweep()
	changed("the end of a lease", false)
	left("a.example", "192.0.2.3", 443, 0)
	l.Lease("b.example", addrs("192.0.2.1"), time.Minute)
	l.RevokeName("b.example")
	changed("a name that is closed", true)
	left("b.example", "192.0.2.1", 443, 0)
	l.Lease("b.example", addrs("192.0.2.1"), time.Minute)
	l.Adopt(parsePolicy(t, "domains: [a.example]"))
	changed("a policy", true)
	left("b.example", "192.0.2.1", 443, 0)
}

// TestLedgerNeverHoldsWhatIsDenied: whatever the order of answers, policies and
// time, the book holds only what the policy in force admits, each element for as
// long as the longest lease of a name on it, and its counts add up.
func TestLedgerNeverHoldsWhatIsDenied(t *testing.T) {
	policies := []string{
		"domains: [a.example.com:443, '*.w.example.net']",
		"domains: ['a.example.com:443 private', 'a.example.com:8443', '*.w.example.net:80']",
		"domains: ['*.example.com:443', '!a.example.com', '!192.0.2.0/28']",
		"domains: ['a.example.com:443 direct', 'b.example.com:443 read', '*.w.example.net:80 GET /x']",
		"domains: ['*.example.com:443 read', 'x.w.example.net:80 direct']",
		"domains: []",
	}
	rng := rand.New(rand.NewPCG(1, 2))
	l, c := newTestLedger(t, policies[0])
	current := l.policy
	names := []string{"a.example.com", "b.example.com", "x.w.example.net", "y.w.example.net", "evil.example.org"}
	for range 5000 {
		switch rng.IntN(11) {
		case 10:
			l.Renew(used(tcp(fmt.Sprintf("192.0.2.%d", rng.IntN(40)), 443)), time.Hour, time.Minute)
		case 0:
			current = parsePolicy(t, policies[rng.IntN(len(policies))])
			l.Adopt(current)
		case 1:
			c.Now = c.Now.Add(time.Duration(rng.IntN(90)) * time.Second)
			l.Sweep()
		case 2:
			l.RevokeName(names[rng.IntN(len(names))])
		default:
			a := netip.AddrFrom4([4]byte{192, 0, 2, byte(rng.IntN(40))})
			if rng.IntN(4) == 0 {
				a = netip.AddrFrom4([4]byte{10, 0, 0, byte(rng.IntN(4))})
			}
			l.Lease(names[rng.IntN(len(names))], []netip.Addr{a}, time.Duration(rng.IntN(120))*time.Second)
		}
		holds, wild := map[firewall.Element]int32{}, 0
		for name, nl := range l.names {
			for _, o := range nl.leases {
				if !slices.Contains(current.Admit(name, o.Addr), portOf(o.Element)) {
					t.Fatalf("%s holds %v, which the policy denies", name, o.Element)
				}
				if e := l.same(name, o.Element); e != o.Element {
					t.Fatalf("%s holds %v, and would open %v", name, o.Element, e)
				}
				holds[o.Element]++
				if l.elements[o.Element].expires < o.expires {
					t.Fatalf("%v ends before its lease for %s", o.Element, name)
				}
				if nl.wildcard {
					wild++
				}
			}
		}
		for e, n := range holds {
			if l.elements[e].names != n {
				t.Fatalf("%v: counted %d, held by %d", e, l.elements[e].names, n)
			}
		}
		if len(holds) != len(l.elements) || wild != l.wild {
			t.Fatalf("%d elements, counted %d; %d of wildcards, counted %d", len(holds), len(l.elements), wild, l.wild)
		}
	}
}
