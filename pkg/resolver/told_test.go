package resolver

import (
	"context"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/audit"
)

// TestNoLookupWithoutLine: who asks for A and AAAA in turn, each when its answer is
// over, makes a look-up of each two, and each has its line.
func TestNoLookupWithoutLine(t *testing.T) {
	r := newRig(t, "ok.test")
	r.pairs.window = time.Hour
	r.up.set(t, "ok.test.", "A", "ok.test. 1 A 192.0.2.1")
	r.up.set(t, "ok.test.", "AAAA", "ok.test. 1 AAAA 2001:db8::1")
	const lookups = 10
	for range lookups {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			r.uncache(question{"ok.test", qtype}) // it is over
			r.ask("ok.test.", qtype)
		}
	}
	if got := r.recorded(audit.Allow); len(got) != lookups {
		t.Errorf("%d look-ups have %d lines", lookups, len(got))
	}
}

// TestAgentsLineBesideTheGuards: what the guard has asked ahead is no line of the
// agent's.
func TestAgentsLineBesideTheGuards(t *testing.T) {
	r := newRig(t, "ok.test")
	r.up.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.1")
	if err := r.Prefetch(t.Context(), []string{"ok.test"}); err != nil {
		t.Fatal(err)
	}
	r.uncache(question{"ok.test", dns.TypeAAAA})
	r.ask("ok.test.", dns.TypeAAAA)
	agents := 0
	for _, e := range r.recorded(audit.Allow) {
		if e.Asker == audit.Agent {
			agents++
		}
	}
	if agents != 1 {
		t.Errorf("the agent's question has %d lines", agents)
	}
}

// TestGuardsDenialsSaySo: also what is denied to the guard itself is not the agent's
// doing, wherever that is found.
func TestGuardsDenialsSaySo(t *testing.T) {
	for what, run := range map[string]func(*rig){
		"an alias": func(r *rig) {
			r.up.set(t, "ok.test.", "A", "ok.test. 60 CNAME denied.test.", "denied.test. 60 A 192.0.2.8")
		},
		"a policy that changes": func(r *rig) {
			ask := r.exchange
			r.exchange = func(ctx context.Context, q question) (*dns.Msg, error) {
				r.policy.Store(policyOf(t, "", "", "other.test"))
				return ask(ctx, q)
			}
		},
		"a budget": func(r *rig) {
			r.policy.Store(policyOf(t, "", "", "*.test"))
			r.config.Spend = func(context.Context, string) (bool, error) { return false, nil }
		},
	} {
		r := newRigWith(t, func(*Config) {}, policyOf(t, "", "", "ok.test", "!denied.test"))
		run(r)
		_ = r.Prefetch(t.Context(), []string{"ok.test"})
		got := r.recorded(audit.Deny)
		if len(got) == 0 {
			t.Errorf("%s: nothing was denied", what)
		}
		for _, e := range got {
			if e.Asker != audit.ByGuard {
				t.Errorf("%s: %+v", what, e)
			}
		}
	}
}
