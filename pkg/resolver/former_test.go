package resolver

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/policy"
)

// TestAnswersOutlivePolicies: what an upstream has said is judged by each new policy, and asked again when its time is over
// or others are asked.
func TestAnswersOutlivePolicies(t *testing.T) {
	lines := []string{"private.test", "none.test", "alias.test", "x.test"}
	r := newRig(t, lines...)
	for i := range 30 {
		name := fmt.Sprintf("n%d.test", i)
		lines = append(lines, name)
		r.up.set(t, name+".", "A", name+". 300 A 192.0.2.1")
	}
	r.up.set(t, "private.test.", "A", "private.test. 300 A 10.0.0.1")
	r.up.set(t, "alias.test.", "A", "alias.test. 300 CNAME evil.test.", "evil.test. 300 A 192.0.2.7")
	r.policy.Store(policyOf(t, "", "", lines...))
	_ = r.Prefetch(t.Context(), lines)
	asked := len(r.up.asked())
	for _, change := range []string{"new.test", "!n7.test", "!evil.test"} {
		lines = append(lines, change)
		r.policy.Store(policyOf(t, "", "", lines...))
		_ = r.Prefetch(t.Context(), lines[:len(lines)-1])
		for _, q := range r.up.asked()[asked:] {
			if q != "new.test. A" && q != "new.test. AAAA" {
				t.Errorf("after %s: asked for %s again", change, q)
			}
		}
		asked = len(r.up.asked())
	}
	if leases := r.leases; len(leases) < 3*30 {
		t.Errorf("%d leases: not each policy has judged them", len(leases))
	}
	for _, name := range []string{"n7.test.", "alias.test."} {
		if _, got := r.lookupA(name); len(got) > 0 {
			t.Errorf("%s, which is denied, is answered with %v", name, got)
		}
	}
	if _, got := r.lookupA("n8.test."); !slices.Equal(got, []string{"192.0.2.1"}) {
		t.Errorf("answered with %v", got)
	}
	// A private address that was refused is admitted by what the policy says now.
	r.policy.Store(policyOf(t, "", "", append(lines, "private.test private")...))
	if _, got := r.lookupA("private.test."); !slices.Equal(got, []string{"10.0.0.1"}) {
		t.Errorf("answered with %v", got)
	}

	e := r.cache.m[question{"n8.test", dns.TypeA}]
	e.expires = e.expires.Add(-100 * time.Second)
	r.policy.Store(policyOf(t, "", "", lines...))
	if q := r.cache.former(question{"n8.test", dns.TypeA}, time.Now()); q == nil || q.Answer[0].Header().Ttl > 200 {
		t.Errorf("kept as %v", q)
	}
	e.expires = time.Now()
	before := len(r.up.asked())
	r.lookupA("n8.test.")
	if len(r.up.asked()) == before {
		t.Error("not asked again when its time is over")
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(r.SetUpstreams([]policy.Upstream{{Addr: r.up.addr}}))
	if len(r.cache.m) == 0 {
		t.Error("the same servers, and what they said is forgotten")
	}
	other := newNameserver(t)
	must(r.SetUpstreams([]policy.Upstream{{Addr: other.addr}}))
	if len(r.cache.m) != 0 {
		t.Error("what others said is kept")
	}
}
