package resolver

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/policy"
)

func TestE03TunnelBelowAWildcard(t *testing.T) {
	p := policyOf(t, "", "", "*.cdn.test", "*.other.test", "ok.cdn.test")
	r := newRigWith(t, func(*Config) {}, p)
	r.up.set(t, "ok.cdn.test.", "A", "ok.cdn.test. 60 A 192.0.2.1")
	r.up.set(t, "a.other.test.", "A", "a.other.test. 60 A 192.0.2.1")
	r.up.set(t, "cdn.test.", "A", "cdn.test. 60 A 192.0.2.1")
	perMinute := p.Settings.Limits.NewNamesPerWildcardPerMinute
	var refused *dns.Msg
	for i := range 1000 {
		name := fmt.Sprintf("%04d%s.cdn.test.", i, strings.Repeat("x", 56))
		if m := r.ask(name, dns.TypeA); refused == nil {
			if _, text := ede(m); strings.HasPrefix(text, "rate: ") {
				refused = m
			}
		}
	}
	if n := len(r.up.asked()); n > perMinute/budget.OddWeight+5 {
		t.Errorf("%d of 1000 names reached the upstream, %d are allowed in a minute", n, perMinute/budget.OddWeight)
	}
	if refused == nil || refused.Rcode != dns.RcodeNameError {
		t.Errorf("the refusal is %v", refused)
	}
	// One key, so that whoever keeps the log can count them together.
	events := r.recorded(audit.Deny)
	if len(events) == 0 || events[0].Name != "*.cdn.test" || events[0].Rule != "allowlist.txt:1" {
		t.Errorf("recorded %+v", events)
	}
	for _, name := range []string{"ok.cdn.test.", "a.other.test."} {
		if _, got := r.lookupA(name); !slices.Equal(got, []string{"192.0.2.1"}) {
			t.Errorf("%s suffers from what is below *.cdn.test: %v", name, got)
		}
	}
}

func TestQPSBoundsOnlyWhatIsAsked(t *testing.T) {
	p := policyOf(t, "dns: {qps: 5}", "", "ok.test", "*.wild.test")
	r := newRigWith(t, func(*Config) {}, p)
	r.up.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.1")
	if rcode, _ := r.lookupA("ok.test."); rcode != 0 {
		t.Fatalf("code %d", rcode)
	}
	refused := 0
	for i := range 50 {
		if rcode, _ := r.lookupA(fmt.Sprintf("n%d.wild.test.", i)); rcode == dns.RcodeServerFailure {
			refused++
		}
		if rcode, _ := r.lookupA("ok.test."); rcode != 0 {
			t.Fatalf("a cached answer was refused: %d", rcode)
		}
		if rcode, _ := r.lookupA("evil.test."); rcode != dns.RcodeNameError {
			t.Fatalf("a denied name: %d", rcode)
		}
	}
	if refused == 0 {
		t.Error("50 questions at once passed, with 5 a second allowed")
	}
	if n := len(r.recorded(audit.Deny)); n != refused+50 {
		t.Errorf("%d refusals recorded, want %d", n, refused+50)
	}
}

// TestAgainBeginsAnswering: who takes the place of another answers the questions that have waited, and has saved up no more.
func TestAgainBeginsAnswering(t *testing.T) {
	began := time.Now()
	r := newRigWith(t, func(c *Config) { c.Again = true }, policyOf(t, "dns: {qps: 100}", "", "*.wild.test"))
	answered := 0
	for i := range 50 {
		name := fmt.Sprintf("n%d.wild.test.", i)
		r.up.set(t, name, "A", name+" 60 A 192.0.2.1")
	}
	for i := range 50 {
		rcode, _ := r.lookupA(fmt.Sprintf("n%d.wild.test.", i))
		if rcode == 0 {
			answered++
		}
		if i == 0 && rcode != 0 {
			t.Errorf("the first question: code %d", rcode)
		}
	}
	if most := 5 + int(100*time.Since(began).Seconds()) + 1; answered > most {
		t.Errorf("%d were answered, where %d may be", answered, most)
	}
}

func TestCacheIsBounded(t *testing.T) {
	const most = 64
	c := newCache(most)
	now := time.Now()
	for i := range 10000 {
		name := fmt.Sprintf("n%d.test", i)
		c.put(question{name, dns.TypeA}, &entry{expires: now.Add(time.Minute)}, nil, now)
		if c.get(question{name, dns.TypeA}, nil, now) == nil {
			t.Fatalf("entry %d isn't there", i)
		}
	}
	if n := len(c.m); n > most {
		t.Errorf("%d entries, want at most %d", n, most)
	}
}

// Each reload, and each grant, makes a policy. What was cached under an old one is
// no answer any more, and does not keep it in memory.
func TestCacheForgetsOldPolicies(t *testing.T) {
	c := newCache(1024)
	now := time.Now()
	key := func(i int) question { return question{fmt.Sprintf("n%d.test", i), dns.TypeA} }
	get := func(i int, p *policy.Policy) *entry { return c.get(key(i), p, now) }
	var old []weak.Pointer[policy.Policy]
	for i := range 50 {
		p := new(policy.Policy)
		old = append(old, weak.Make(p))
		for j := range 4 {
			c.put(key(4*i+j), &entry{expires: now.Add(time.Minute)}, p, now)
		}
		if get(4*i, p) == nil || i > 0 && get(4*i-1, p) != nil {
			t.Fatalf("policy %d: an answer of its own is gone, or one of another is there", i)
		}
	}
	if n := len(c.m); n != 4 {
		t.Errorf("%d answers are held", n)
	}
	last := new(policy.Policy)
	if get(199, last) != nil {
		t.Error("an answer is given under a policy that it was not admitted under")
	}
	c.put(key(0), &entry{expires: now.Add(time.Minute)}, last, now)
	runtime.GC()
	for i, p := range old {
		if p.Value() != nil {
			t.Errorf("policy %d is still in memory", i)
		}
	}
	runtime.KeepAlive(c)
}

func TestEvictPrefersExpired(t *testing.T) {
	now := time.Now()
	for range 100 {
		old, fresh := question{name: "old"}, question{name: "new"}
		c := &cache{m: map[question]*entry{old: {expires: now}, fresh: {expires: now.Add(time.Hour)}}}
		c.evict(now)
		if c.m[fresh] == nil {
			t.Fatal("an entry that is still good went, an expired one stayed")
		}
	}
}

func TestSeenIsBounded(t *testing.T) {
	s := seen{window: time.Minute}
	now := time.Now()
	for i := range 5000 {
		if s.look(fmt.Sprint(i), now, true) {
			t.Fatalf("%d was not seen before", i)
		}
	}
	if len(s.at) > 1024 {
		t.Errorf("%d names are remembered", len(s.at))
	}
	if !s.look("4999", now, true) || !s.look("4999", now, false) || s.look("4999", now.Add(time.Minute), true) {
		t.Error("the window is wrong")
	}
}
