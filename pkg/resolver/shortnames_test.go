package resolver

import (
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

func newPod(t *testing.T, list string) *rig {
	t.Helper()
	p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "allowlist.txt", Data: []byte(list)}},
		Resolv: policy.Resolv{Search: []string{"ns.svc.lab", "svc.lab", "corp.test"}, Ndots: 5}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return newRigWith(t, func(*Config) {}, p)
}

// TestShortNames: the question for a short name is answered with the first form of it that exists, and the questions for the
// forms are not, so that every program comes to the same server.
func TestShortNames(t *testing.T) {
	r := newPod(t, "db:5432\n!db:9\nweb.other:80 private\nnodata\ndead\n")
	r.up.set(t, "db.svc.lab.", "A", "db.svc.lab. 60 A 10.1.0.1")
	r.up.set(t, "db.corp.test.", "A", "db.corp.test. 60 A 10.1.0.2")
	r.up.set(t, "web.other.svc.lab.", "A", "web.other.svc.lab. 60 CNAME x.lab.", "x.lab. 60 A 10.1.0.3")
	r.up.set(t, "nodata.svc.lab.", "AAAA", "nodata.svc.lab. 60 AAAA fd00::1")
	r.up.set(t, "nodata.corp.test.", "A", "nodata.corp.test. 60 A 10.1.0.4")
	r.up.script("dead.ns.svc.lab.", "A", func(_ dns.ResponseWriter, q *dns.Msg) *dns.Msg {
		m := new(dns.Msg)
		m.SetRcode(q, dns.RcodeServerFailure)
		return m
	})
	r.up.set(t, "dead.svc.lab.", "A", "dead.svc.lab. 60 A 10.1.0.5")
	for _, tc := range []struct {
		name  string
		rcode int
		addrs []string
		asked []string
	}{
		{"db.ns.svc.lab.", dns.RcodeNameError, nil, nil},
		{"db.svc.lab.", dns.RcodeNameError, nil, nil},
		{"db.corp.test.", dns.RcodeNameError, nil, nil},
		{"db.", 0, []string{"10.1.0.1"}, []string{"db.ns.svc.lab. A", "db.svc.lab. A"}},
		{"DB.", 0, []string{"10.1.0.1"}, nil}, // from the cache
		{"web.other.", 0, []string{"10.1.0.3"}, []string{"web.other.ns.svc.lab. A", "web.other.svc.lab. A"}},
		{"nodata.", 0, nil, []string{"nodata.ns.svc.lab. A", "nodata.svc.lab. A"}}, // it exists
		{"dead.", dns.RcodeServerFailure, nil, nil},
	} {
		before := len(r.up.asked())
		m := r.ask(tc.name, dns.TypeA)
		if m.Rcode != tc.rcode || !slices.Equal(addresses(m), tc.addrs) {
			t.Errorf("%s: %v", tc.name, m)
		}
		asked := r.up.asked()[before:]
		if tc.name == "dead." {
			if slices.Contains(asked, "dead.svc.lab. A") {
				t.Errorf("%s: asked %q", tc.name, asked)
			}
		} else if !slices.Equal(asked, tc.asked) {
			t.Errorf("%s: asked %q, want %q", tc.name, asked, tc.asked)
		}
	}
	for _, l := range r.leased() {
		if l.name != "db" && l.name != "web.other" {
			t.Errorf("leased to %s", l.name)
		}
	}
	if denied := r.recorded(audit.Deny); len(denied) > 0 {
		t.Errorf("recorded %+v", denied)
	}
}

// TestFullNames: a full name that answers for a short one of the policy opens what that has as well, before the answer; and
// its short form is asked for by nobody.
func TestFullNames(t *testing.T) {
	r := newPod(t, "both:5432\nboth.svc.lab:80 private\nfull.svc.lab:80 private\n*.zone.lab\n")
	r.up.set(t, "both.svc.lab.", "A", "both.svc.lab. 60 A 10.1.0.1")
	r.up.set(t, "full.svc.lab.", "A", "full.svc.lab. 60 A 10.1.0.2")
	if _, got := r.lookupA("both.svc.lab."); !slices.Equal(got, []string{"10.1.0.1"}) {
		t.Errorf("both has %v", got)
	}
	var names []string
	for _, l := range r.leased() {
		names = append(names, l.name)
	}
	if !slices.Contains(names, "both") || !slices.Contains(names, "both.svc.lab") {
		t.Errorf("leased to %q", names)
	}
	before := len(r.up.asked())
	if m := r.ask("full.", dns.TypeA); m.Rcode != dns.RcodeNameError || len(r.up.asked()) != before || len(r.recorded(audit.Deny)) > 0 {
		t.Errorf("full: %v, asked %q, recorded %+v", m, r.up.asked()[before:], r.recorded(audit.Deny))
	}
}

// TestRefusedForms: a name that is refused has one line in the log, whichever forms of it are asked for, and the line names
// what the program was told to reach.
func TestRefusedForms(t *testing.T) {
	for name, forms := range map[string][]string{
		"web":            {"web.ns.svc.lab.", "web.svc.lab.", "web.corp.test.", "web."},
		"web.ns":         {"web.ns.ns.svc.lab.", "web.ns.svc.lab.", "web.ns.corp.test.", "web.ns."},
		"web.ns.svc.lab": {"web.ns.svc.lab.ns.svc.lab.", "web.ns.svc.lab.svc.lab.", "web.ns.svc.lab.corp.test.", "web.ns.svc.lab."},
		"bad":            {"bad.ns.svc.lab.", "bad.svc.lab.", "bad.corp.test.", "bad."},
	} {
		r := newPod(t, "ok.test\n!bad\n")
		for _, form := range forms {
			if m := r.ask(form, dns.TypeA); m.Rcode != dns.RcodeNameError {
				t.Errorf("%s: %v", form, m)
			}
		}
		if got := r.recorded(audit.Deny); len(got) != 1 || got[0].Name != name || (got[0].Rule != "") != (name == "bad") {
			t.Errorf("%s: %+v", name, got)
		}
		if asked := r.up.asked(); len(asked) > 0 {
			t.Errorf("%s: asked %q", name, asked)
		}
	}
}

// TestShortOfFull: who resolves the short form of an entry's name by itself gets the entry's addresses, and no others.
func TestShortOfFull(t *testing.T) {
	r := newPod(t, "full.svc.lab:80 private\n")
	r.up.set(t, "full.ns.svc.lab.", "A", "full.ns.svc.lab. 60 A 10.1.0.9")
	r.up.set(t, "full.svc.lab.", "A", "full.svc.lab. 60 A 10.1.0.2")
	addrs, _, err := r.Lookup(t.Context(), "full", time.Second)
	if err != nil || len(addrs) != 1 || addrs[0].String() != "10.1.0.2" {
		t.Errorf("%v, %v", addrs, err)
	}
}
