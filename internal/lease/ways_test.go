package lease

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/firewall"
)

// to is an element for whoever goes out there.
func to(addr string, port uint16, h firewall.Holder) firewall.Element {
	e := tcp(addr, port)
	e.For = h
	return e
}

// TestLedgerWays: the policy says who goes out to what a name opens. Where it says otherwise later, what was open is
// closed, and opened for the other, for no longer.
func TestLedgerWays(t *testing.T) {
	const agent, gated, inspected = firewall.Agent, firewall.Gated, firewall.Inspected
	l, c := newTestLedger(t, "domains: [a.test:443, 'a.test:8443 tls', a.test:22, 'a.test:443/udp']")
	all := func() (out []firewall.Element) {
		for _, o := range l.Leases() {
			if out = append(out, o.Element); o.TTL != 50*time.Second && o.Proto == 6 {
				t.Errorf("%v is open for %v", o.Element, o.TTL)
			}
		}
		return slices.SortedFunc(slices.Values(out), func(a, b firewall.Element) int { return int(a.Port) - int(b.Port) + int(b.Proto) - int(a.Proto) })
	}
	l.Lease("a.test", addrs("192.0.2.1"), time.Minute)
	c.Now = c.Now.Add(10 * time.Second)
	quic := firewall.Element{Addr: addrs("192.0.2.1")[0], Proto: 17, Port: 443}
	first := []firewall.Element{to("192.0.2.1", 22, agent), quic, to("192.0.2.1", 443, gated), to("192.0.2.1", 8443, gated)}
	for _, step := range []struct {
		list         string
		closed, open []firewall.Element
	}{
		{"domains: [a.test:443, 'a.test:8443 tls', a.test:22, 'a.test:443/udp', b.test]", nil, first},
		{"domains: ['a.test:443 direct', 'a.test:8443', 'a.test:22']",
			[]firewall.Element{quic, to("192.0.2.1", 443, gated), to("192.0.2.1", 8443, gated)},
			[]firewall.Element{to("192.0.2.1", 22, agent), to("192.0.2.1", 443, agent), to("192.0.2.1", 8443, agent)}},
		{"domains: ['a.test:443 read', 'a.test:8443 GET /x', 'a.test:22']",
			[]firewall.Element{to("192.0.2.1", 443, agent), to("192.0.2.1", 8443, agent)},
			[]firewall.Element{to("192.0.2.1", 22, agent), to("192.0.2.1", 443, inspected), to("192.0.2.1", 8443, inspected)}},
		{"domains: ['a.test:443']",
			[]firewall.Element{to("192.0.2.1", 22, agent), to("192.0.2.1", 443, inspected), to("192.0.2.1", 8443, inspected)},
			[]firewall.Element{to("192.0.2.1", 443, gated)}},
	} {
		was := l.edition.Load()
		closed := l.Adopt(parsePolicy(t, step.list))
		slices.SortFunc(closed, func(a, b firewall.Element) int { return int(a.Port) - int(b.Port) + int(b.Proto) - int(a.Proto) })
		if !slices.Equal(closed, step.closed) || !slices.Equal(all(), step.open) {
			t.Errorf("%s:\nclosed %v\nwant   %v\nopen   %v\nwant   %v", step.list, closed, step.closed, all(), step.open)
		}
		for _, e := range closed {
			if l.Knows(e) || l.Holds(e) {
				t.Errorf("%s: %v is still in the book", step.list, e)
			}
		}
		if names, elements := l.Counts(); names != 1 || elements != len(step.open) || l.edition.Load() == was {
			t.Errorf("%s: %d names, %d elements", step.list, names, elements)
		}
		if left, _ := l.LeasedTo("a.test", tcp("192.0.2.1", 443)); left != 50*time.Second {
			t.Errorf("%s: leased for %v", step.list, left)
		}
	}
	if closed := l.Adopt(parsePolicy(t, "domains: [b.test]")); !slices.Equal(closed, []firewall.Element{to("192.0.2.1", 443, gated)}) {
		t.Errorf("closed %v", closed)
	}
}

// TestLedgerLapsedWays: what is under way by a lease that has lapsed ends as well when somebody else is to go out there.
func TestLedgerLapsedWays(t *testing.T) {
	l, c := newTestLedger(t, "domains: ['a.test:443 direct']")
	l.Lease("a.test", addrs("192.0.2.1"), time.Minute)
	c.Now = c.Now.Add(time.Hour)
	l.Sweep()
	e := to("192.0.2.1", 443, firewall.Agent)
	if l.Holds(e) || !l.Knows(e) {
		t.Fatal("proves nothing: the lease has not lapsed")
	}
	if closed := l.Adopt(parsePolicy(t, "domains: [a.test:443]")); !slices.Equal(closed, []firewall.Element{e}) || l.Knows(e) {
		t.Errorf("closed %v", closed)
	}
}

// TestLedgerSharedWays: names that share an address each have it in their own way, and the gate is told of no name that
// the guard does not go out for. Of the others, one that it looks into comes first.
func TestLedgerSharedWays(t *testing.T) {
	l, _ := newTestLedger(t, "domains: ['direct.test:443 direct', gated.test:443, 'seen.test:443 read']")
	for _, name := range []string{"seen.test", "direct.test", "gated.test"} {
		l.Lease(name, addrs("192.0.2.1"), time.Minute)
		want := map[string]string{"seen.test": "", "direct.test": "direct.test", "gated.test": "gated.test"}[name]
		if got := l.Holder(to("192.0.2.1", 443, firewall.Agent)); got != want {
			t.Errorf("with %s: open to %q, want %q", name, got, want)
		}
	}
	if n := len(l.Leases()); n != 3 {
		t.Errorf("%d elements: %v", n, l.Leases())
	}
	// The kernel counts a flow once, whoever's it is: all who share the address keep it.
	if got := l.Renew(used(to("192.0.2.1", 443, firewall.Agent)), time.Hour, 2*time.Minute); len(got) != 3 {
		t.Errorf("renewed %v", got)
	}
	closed := l.RevokeName("gated.test")
	if !slices.Equal(closed, []firewall.Element{to("192.0.2.1", 443, firewall.Gated)}) {
		t.Errorf("closed %v", closed)
	}
	for _, want := range []string{"", "443/tcp"} { // past the gate, once nobody else is looked into there
		r := l.addresses(l.names["direct.test"])
		if len(r) != 1 || r[0].On != "443/tcp" || r[0].Direct != want {
			t.Errorf("reported: %+v, want %q past the gate", r, want)
		}
		l.RevokeName("seen.test")
	}
}

// TestBooksRenewInspected: nobody goes out to the address that the agent was told. The broker goes to one of its own,
// and what it has open for the name keeps the agent's.
func TestBooksRenewInspected(t *testing.T) {
	b := NewBooks(parsePolicy(t, "domains: ['a.test:443 read', 'b.test:443 read']"), &wire.Edition{Uint64: new(atomic.Uint64)})
	for _, name := range []string{"a.test", "b.test"} {
		b.Of(firewall.Agent).Lease(name, addrs("192.0.2.1"), time.Minute)
	}
	if _, got := b.Of(firewall.Broker).Lease("a.test", addrs("192.0.2.7"), time.Minute); len(got) != 1 {
		t.Fatal("nothing is leased to the broker")
	}
	mine, its := to("192.0.2.1", 443, firewall.Inspected), to("192.0.2.7", 443, firewall.Broker)
	if got := b.Renew(used(to("192.0.2.7", 443, firewall.Gated)), time.Hour, 2*time.Minute); len(got) != 0 {
		t.Errorf("renewed %v by what is not the broker's", got)
	}
	in := used(its)
	got := b.Renew(in, time.Hour, 2*time.Minute)
	if len(in) != 1 || len(got) != 3 || got[2].Element != its || got[0].Element != mine { // two names on it
		t.Errorf("renewed %v", got)
	}
}
