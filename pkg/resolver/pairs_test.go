package resolver

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/audit"
)

// TestPairs: A and AAAA of a name are one look-up, whoever else asks meanwhile, and
// nothing else is.
func TestPairs(t *testing.T) {
	type asked struct {
		name  string
		qtype uint16
		after time.Duration
		first bool
	}
	for name, questions := range map[string][]asked{
		"a pair":          {{"a.test", dns.TypeA, 0, true}, {"a.test", dns.TypeAAAA, 0, false}},
		"the other order": {{"a.test", dns.TypeAAAA, 0, true}, {"a.test", dns.TypeA, time.Second, false}},
		"too late":        {{"a.test", dns.TypeA, 0, true}, {"a.test", dns.TypeAAAA, pairTime, true}},
		"the same again":  {{"a.test", dns.TypeA, 0, true}, {"a.test", dns.TypeA, 0, true}},
		"two pairs": {
			{"a.test", dns.TypeA, 0, true}, {"a.test", dns.TypeA, 0, true},
			{"a.test", dns.TypeAAAA, 0, false}, {"a.test", dns.TypeAAAA, 0, false}, {"a.test", dns.TypeAAAA, 0, true},
		},
		"another name": {{"a.test", dns.TypeA, 0, true}, {"b.test", dns.TypeAAAA, 0, true}},
		"another type": {{"a.test", dns.TypeA, 0, true}, {"a.test", dns.TypeTXT, 0, true}, {"a.test", dns.TypeTXT, 0, true}},
		"pairs in sequence": {
			{"a.test", dns.TypeA, 0, true}, {"a.test", dns.TypeAAAA, 0, false},
			{"a.test", dns.TypeA, 0, true}, {"a.test", dns.TypeAAAA, 0, false},
		},
	} {
		p, now := newPairs(), time.Now()
		for i, q := range questions {
			now = now.Add(q.after)
			if got := p.first(question{q.name, q.qtype}, now); got != q.first {
				t.Errorf("%s: question %d: %v", name, i+1, got)
			}
		}
	}
}

// TestLookupIsOneLine: what is refused or allowed stands in the log once, and counts
// once, whatever the number of questions that a program asks for it.
func TestLookupIsOneLine(t *testing.T) {
	r := newRig(t, "ok.test", "six.test", "none.test")
	r.pairs.window = time.Hour
	r.up.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.1")
	r.up.set(t, "ok.test.", "AAAA", "ok.test. 60 AAAA 2001:db8::1")
	r.up.set(t, "six.test.", "AAAA", "six.test. 60 AAAA 2001:db8::2")
	for _, name := range []string{"denied.test.", "ok.test.", "six.test.", "none.test."} {
		r.ask(name, dns.TypeA)
		r.ask(name, dns.TypeAAAA)
	}
	lines := map[string][]string{}
	for _, v := range []audit.Verdict{audit.Deny, audit.Allow} {
		for _, e := range r.recorded(v) {
			lines[e.Name] = append(lines[e.Name], e.IP)
		}
	}
	for name, want := range map[string][]string{"denied.test": {""}, "ok.test": {"192.0.2.1"}, "six.test": {"", "2001:db8::2"}, "none.test": {""}} {
		if len(lines[name]) != len(want) || lines[name][len(want)-1] != want[len(want)-1] {
			t.Errorf("%s: lines with %q, want %q", name, lines[name], want)
		}
	}
	if s := r.Stats(); s.Queries.Load() != 4 || s.Allowed.Load() != 3 || s.Denied.Load() != 1 {
		t.Errorf("counted: %+v", s)
	}
}

// TestLookupsUnderWayAreOneLine: both questions at once, as most programs ask them.
func TestLookupsUnderWayAreOneLine(t *testing.T) {
	r := newRig(t, "ok.test")
	begun, release := make(chan struct{}, 2), make(chan struct{})
	r.exchange = func(_ context.Context, q question) (*dns.Msg, error) {
		begun <- struct{}{}
		<-release
		m := new(dns.Msg)
		m.SetQuestion(dns.Fqdn(q.name), q.qtype)
		m.Response = true
		rr, err := dns.NewRR(map[uint16]string{dns.TypeA: "ok.test. 60 A 192.0.2.1", dns.TypeAAAA: "ok.test. 60 AAAA 2001:db8::1"}[q.qtype])
		m.Answer = []dns.RR{rr}
		return m, err
	}
	var both sync.WaitGroup
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		both.Go(func() { r.ask("ok.test.", qtype) })
	}
	<-begun
	<-begun
	close(release)
	both.Wait()
	if got := r.recorded(audit.Allow); len(got) != 1 {
		t.Errorf("lines: %+v", got)
	}
}

// TestWhoAsks: the guard's own look-ups say so and don't count, what is asked aside
// does not count either, and of others it is found out who asks.
func TestWhoAsks(t *testing.T) {
	r := newRigWith(t, func(c *Config) {
		c.FindAllowed = func(string, netip.AddrPort, netip.AddrPort) *audit.Process {
			return &audit.Process{UID: 1000, PID: 7, Comm: "curl"}
		}
		c.Aside = func(name string) bool { return name == "probed.test" }
	}, policyOf(t, "", "", "ahead.test", "ok.test", "bad.test"))
	for _, name := range []string{"ahead", "ok", "bad"} {
		addr := map[string]string{"bad": "127.0.0.1"}[name]
		if addr == "" {
			addr = "192.0.2.1"
		}
		r.up.set(t, name+".test.", "A", name+".test. 60 A "+addr)
	}
	_ = r.Prefetch(t.Context(), []string{"ahead.test", "bad.test"}) // whose error is about bad.test
	r.ask("probed.test.", dns.TypeA)
	if s := r.Stats(); s.Queries.Load()+s.Allowed.Load()+s.Denied.Load() != 0 {
		t.Errorf("counted: %+v", s)
	}
	var c dns.Client
	q := new(dns.Msg)
	q.SetQuestion("ok.test.", dns.TypeA)
	if _, _, err := c.Exchange(q, r.serve()); err != nil {
		t.Fatal(err)
	}
	for _, v := range []audit.Verdict{audit.Allow, audit.Deny} {
		for _, e := range r.recorded(v) {
			own := e.Name == "ahead.test" || e.Name == "bad.test"
			if own != (e.Asker == audit.ByGuard) {
				t.Errorf("who asked: %+v", e)
			}
			if e.Name == "ok.test" && (e.PID != 7 || e.Comm != "curl") {
				t.Errorf("the process: %+v", e)
			}
		}
	}
	if s := r.Stats(); s.Queries.Load() != 1 || s.Allowed.Load() != 1 {
		t.Errorf("counted: %+v", s)
	}
}
