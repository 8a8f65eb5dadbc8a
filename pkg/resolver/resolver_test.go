package resolver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

func TestCachedAnswer(t *testing.T) {
	r := newRig(t, "ok.test")
	r.up.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.1", "ok.test. 60 A 192.0.2.2", "ok.test. 60 A 192.0.2.3")
	firsts := make(map[string]int)
	for range 30 {
		m := r.ask("ok.test.", dns.TypeA)
		if len(m.Answer) != 3 {
			t.Fatal(m)
		}
		firsts[addresses(m)[0]]++
	}
	if len(firsts) != 3 {
		t.Errorf("addresses don't take turns: %v", firsts)
	}
	if n := len(r.up.asked()); n != 1 {
		t.Errorf("the upstream was asked %d times", n)
	}
	if n := len(r.leased()); n != 1 {
		t.Errorf("%d leases", n)
	}
	if got := r.Stats(); got.Cached.Load() != 29 || got.Allowed.Load() != 30 || got.Asked.Load() != 1 || got.Queries.Load() != 30 || len(r.cache.m) != 1 {
		t.Errorf("stats %+v", got)
	}
	// A new policy counts from the next query on.
	r.policy.Store(policyOf(t, "", "", "other.test"))
	if rcode, _ := r.lookupA("ok.test."); rcode != dns.RcodeNameError {
		t.Errorf("after the name was taken out of the policy: code %d", rcode)
	}
}

func TestCachedTTLCountsDown(t *testing.T) {
	r := newRig(t, "ok.test")
	r.up.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.1")
	r.ask("ok.test.", dns.TypeA)
	e := r.cache.get(question{"ok.test", dns.TypeA}, r.policy.Load(), time.Now())
	e.expires = e.expires.Add(-50 * time.Second)
	if ttl := r.ask("ok.test.", dns.TypeA).Answer[0].Header().Ttl; ttl < 1 || ttl > 10 {
		t.Errorf("TTL %d of an answer that is 50 s old and was good for 60", ttl)
	}
	e.expires = e.expires.Add(-10 * time.Second)
	r.ask("ok.test.", dns.TypeA)
	if n := len(r.up.asked()); n != 2 {
		t.Errorf("the upstream was asked %d times: nothing stale may be served", n)
	}
}

func TestPolicyChangesWhileAsking(t *testing.T) {
	r := newRig(t, "ok.test")
	r.up.script("ok.test.", "A", func(_ dns.ResponseWriter, q *dns.Msg) *dns.Msg {
		r.policy.Store(policyOf(t, "", "", "!ok.test"))
		m := new(dns.Msg)
		m.SetReply(q)
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: "ok.test.", Rrtype: dns.TypeA, Class: 1, Ttl: 60}, A: []byte{192, 0, 2, 1}}}
		return m
	})
	if rcode, got := r.lookupA("ok.test."); rcode != dns.RcodeNameError || len(got) != 0 {
		t.Errorf("code %d, %v", rcode, got)
	}
	if l := r.leased(); len(l) != 0 {
		t.Errorf("leased %v", l)
	}
}

func TestNegativeAnswers(t *testing.T) {
	r := newRig(t, "gone.test", "empty.test")
	r.up.set(t, "empty.test.", "AAAA", "empty.test. 60 AAAA 2001:db8::1")
	r.up.script("gone.test.", "A", func(_ dns.ResponseWriter, q *dns.Msg) *dns.Msg {
		m := new(dns.Msg)
		m.SetRcode(q, dns.RcodeNameError)
		soa, _ := dns.NewRR("test. 3600 SOA a. b. 1 1 1 1 3600")
		m.Ns = []dns.RR{soa}
		return m
	})
	for range 3 {
		m := r.ask("gone.test.", dns.TypeA)
		if m.Rcode != dns.RcodeNameError || len(m.Ns) != 1 || m.Ns[0].Header().Ttl != 30 {
			t.Errorf("no such name: %v", m)
		}
		if m := r.ask("empty.test.", dns.TypeA); m.Rcode != dns.RcodeSuccess || len(m.Answer) != 0 || m.Ns[0].Header().Ttl != 1 {
			t.Errorf("no such address: %v", m)
		}
	}
	if n := len(r.up.asked()); n != 2 {
		t.Errorf("the upstream was asked %d times", n)
	}
}

func TestLocalNames(t *testing.T) {
	p := policyOf(t, "", "172.17.0.1 host.docker.internal gateway\n2001:db8::9 six.test\n192.0.2.5 denied.test\n",
		"host.docker.internal:11434", "six.test", "!denied.test")
	r := newRigWith(t, func(*Config) {}, p)
	for _, tt := range []struct {
		name  string
		qtype uint16
		rcode int
		want  []string
	}{
		{"localhost.", dns.TypeA, 0, []string{"127.0.0.1"}},
		{"LocalHost.", dns.TypeAAAA, 0, []string{"::1"}},
		{"foo.localhost.", dns.TypeA, 0, []string{"127.0.0.1"}},
		{"localhost.", dns.TypeMX, 0, nil},
		{"host.docker.internal.", dns.TypeA, 0, []string{"172.17.0.1"}},
		{"host.docker.internal.", dns.TypeAAAA, 0, nil},
		{"gateway.", dns.TypeA, 0, []string{"172.17.0.1"}},
		{"six.test.", dns.TypeAAAA, 0, []string{"2001:db8::9"}},
		{"denied.test.", dns.TypeA, dns.RcodeNameError, nil},
	} {
		if m := r.ask(tt.name, tt.qtype); m.Rcode != tt.rcode || !slices.Equal(addresses(m), tt.want) {
			t.Errorf("%s %s: %v", tt.name, dns.Type(tt.qtype), m)
		}
	}
	if got := r.up.asked(); len(got) != 0 || len(r.leased()) != 0 {
		t.Errorf("asked %q, leased %v", got, r.leased())
	}
}

func TestSearchDomains(t *testing.T) {
	r := newRig(t, "ok.test", "*.inside.corp.test")
	r.up.set(t, "db.inside.corp.test.", "A", "db.inside.corp.test. 60 A 192.0.2.1")
	// What a client with two search domains and ndots:5 asks for.
	for _, name := range []string{"ok.test.corp.test.", "ok.test.svc.cluster.local.", "evil.test.corp.test.", "evil.test.svc.cluster.local.", "evil.test."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			if m := r.ask(name, qtype); m.Rcode != dns.RcodeNameError {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
	if got := r.up.asked(); len(got) != 0 {
		t.Errorf("the upstream was asked %q", got)
	}
	events := r.recorded(audit.Deny)
	if len(events) != 1 || events[0].Name != "evil.test" {
		t.Errorf("recorded %+v", events)
	}
	if _, got := r.lookupA("db.inside.corp.test."); !slices.Equal(got, []string{"192.0.2.1"}) {
		t.Errorf("an allowed name below a search domain has %v", got)
	}
}

func TestSingleFlight(t *testing.T) {
	r := newRig(t, "ok.test")
	release := make(chan struct{})
	var asked sync.WaitGroup
	asked.Add(1)
	r.exchange = func(context.Context, question) (*dns.Msg, error) {
		asked.Done() // panics the second time
		<-release
		m := new(dns.Msg)
		m.SetQuestion("ok.test.", dns.TypeA)
		rr, _ := dns.NewRR("ok.test. 60 A 192.0.2.1")
		m.Answer = []dns.RR{rr}
		return m, nil
	}
	const clients = 40
	got := make(chan *dns.Msg, clients)
	for i := range clients {
		go func() {
			q := asks([]string{"ok.test.", "OK.test."}[i%2], dns.TypeA)
			q.Id = uint16(i)
			got <- r.send(q)
		}()
	}
	asked.Wait()
	for {
		r.Server.mu.Lock()
		n := len(r.lookups[question{"ok.test", dns.TypeA}].waiters)
		r.Server.mu.Unlock()
		if n == clients {
			break
		}
		time.Sleep(time.Millisecond)
	}
	close(release)
	for range clients {
		if m := <-got; len(m.Answer) != 1 {
			t.Errorf("answer %v", m)
		}
	}
	if n := len(r.leased()); n != 1 {
		t.Errorf("%d leases", n)
	}
}

// Of many who ask the same, only so many wait; what the program asks for itself
// always may.
func TestWaitersAreBounded(t *testing.T) {
	const most = 3
	r := newRig(t, "ok.test")
	r.limits.waiters = most
	release := make(chan struct{})
	r.exchange = func(context.Context, question) (*dns.Msg, error) {
		<-release
		return nil, errTimeout
	}
	var answered sync.WaitGroup
	join := func(client *asker) bool {
		answered.Add(1)
		a, ok := r.Server.ask(client, func(*answer) { answered.Done() })
		if a != nil || !ok {
			answered.Done()
		}
		return ok
	}
	for i := range 2 * most {
		if ok := join(&asker{question: question{"ok.test", dns.TypeA}, client: client{count: &r.uncounted}, find: audit.Nobody}); ok != (i < most) {
			t.Errorf("client %d: %v", i+1, ok)
		}
	}
	if !join(&asker{question: question{"ok.test", dns.TypeA}, client: client{count: &r.uncounted, own: true}}) {
		t.Error("a question of our own has no place")
	}
	close(release)
	answered.Wait()
}

func TestPrefetch(t *testing.T) {
	p := policyOf(t, "dns: {qps: 1}", "192.0.2.5 hosts.test\n", "a.test", "six.test", "none.test", "hosts.test", "private.test")
	r := newRigWith(t, func(*Config) {}, p)
	r.up.set(t, "a.test.", "A", "a.test. 60 A 192.0.2.1")
	r.up.set(t, "six.test.", "AAAA", "six.test. 60 AAAA 2001:db8::1")
	r.up.set(t, "private.test.", "A", "private.test. 60 A 10.0.0.1")
	if err := r.Prefetch(t.Context(), []string{"a.test", "six.test", "hosts.test"}); err != nil {
		t.Error(err)
	}
	before := len(r.up.asked())
	if _, got := r.lookupA("a.test."); !slices.Equal(got, []string{"192.0.2.1"}) || len(r.up.asked()) != before {
		t.Errorf("not in the cache: %v", got)
	}
	err := r.Prefetch(t.Context(), []string{"a.test", "none.test", "evil.test", "private.test"})
	for _, part := range []string{"none.test: no such name", "evil.test: not in the allowlist", "private.test: no answer is left: a private address"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %q lacks %q", err, part)
		}
	}
	r.wantNothing("evil")
	r.wantNothing("hosts")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Prefetch(ctx, []string{"a.test"}); !errors.Is(err, context.Canceled) {
		t.Errorf("after cancelling: %v", err)
	}
}

// TestPrefetchHasARate: of many names, those behind the first hundred come at no more than 1,000 a second.
func TestPrefetchHasARate(t *testing.T) {
	var names []string
	for i := range aheadAtOnce + 301 {
		names = append(names, fmt.Sprintf("n%d.test", i))
	}
	r := newRig(t, names...)
	began := time.Now()
	_ = r.Prefetch(t.Context(), names) // none has an address
	if took := time.Since(began); took < 300*aheadEvery*9/10 {
		t.Errorf("%d names took %v", len(names), took)
	}
	if asked := len(r.up.asked()); asked < 2*len(names) { // more where an answer came late
		t.Errorf("%d questions about %d names", asked, len(names))
	}
}

// TestLookup: who asks in the same process gets what is open, and waits for the other family no longer than it says.
func TestLookup(t *testing.T) {
	p := policyOf(t, "", "192.0.2.5 hosts.test\n", "both.test", "slow.test", "none.test", "hosts.test")
	r := newRigWith(t, func(*Config) {}, p)
	r.up.set(t, "both.test.", "A", "both.test. 60 A 192.0.2.1")
	r.up.set(t, "both.test.", "AAAA", "both.test. 30 AAAA 2001:db8::1")
	r.up.set(t, "slow.test.", "A", "slow.test. 60 A 192.0.2.2")
	r.up.script("slow.test.", "AAAA", func(dns.ResponseWriter, *dns.Msg) *dns.Msg { return nil })
	for name, want := range map[string]struct {
		addrs string
		most  time.Duration
		err   string
	}{
		"both.test":  {"192.0.2.1 2001:db8::1", 30 * time.Second, ""},
		"slow.test":  {"192.0.2.2", time.Minute, ""},
		"hosts.test": {"192.0.2.5", time.Minute, ""},
		"none.test":  {"", 0, "no such name"},
		"evil.test":  {"", 0, "not in the allowlist"},
	} {
		begun := time.Now()
		addrs, ttl, err := r.Lookup(t.Context(), name, 50*time.Millisecond)
		var got []string
		for _, a := range addrs {
			got = append(got, a.String())
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want.addrs || ttl > want.most || ttl < want.most/2 || (err == nil) != (want.err == "") {
			t.Errorf("%s: %v for %v, %v", name, got, ttl, err)
		}
		if err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("%s: error %q lacks %q", name, err, want.err)
		}
		if took := time.Since(begun); took > 4*time.Second {
			t.Errorf("%s: waited for %v", name, took)
		}
	}
	r.wantNothing("evil")
}

func TestNewRefusesNonsense(t *testing.T) {
	good := newRig(t, "ok.test").config
	for what, change := range map[string]func(*Config){
		"no policy":     func(c *Config) { c.Policy = nil },
		"no admit":      func(c *Config) { c.Admit = nil },
		"zero upstream": func(c *Config) { c.Upstreams = []policy.Upstream{{}} },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
