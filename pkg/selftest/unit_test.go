package selftest

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPlanRoundTrip(t *testing.T) {
	p := DefaultPlan("example.com")
	p.System = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.53:53")}
	p.Required = []Target{{Name: "api.anthropic.com", Port: 443, TLS: true}}
	p.BlockTimeout = time.Second
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var again Plan
	if err := json.Unmarshal(raw, &again); err != nil {
		t.Fatal(err)
	}
	if two, _ := json.Marshal(again); !bytes.Equal(raw, two) {
		t.Errorf("%s\n%s", raw, two)
	}
}

func testReport(fail bool) Report {
	check := func(name, target, family, want, got, detail string, ms float64) Check {
		return Check{Name: name, Target: target, Family: family, Want: want, Got: got, OK: want == got, Detail: detail, Millis: ms}
	}
	checks := []Check{
		check("dns-system", "10.0.0.1:53/udp", "IPv4", Blocked, Blocked, "NXDOMAIN (blocked)", 0.4),
		check("dns-system", "10.0.0.1:53/tcp", "IPv4", Blocked, Blocked, "NXDOMAIN (blocked)", 0.6),
		check("tcp", "1.1.1.1:443", "IPv4", Blocked, Blocked, "refused", 1.2),
		check("tcp", "1.1.1.1:80", "IPv4", Blocked, Blocked, "no answer (timeout)", 1000),
		check("tcp", "8.8.8.8:443", "IPv4", Blocked, Blocked, "refused", 0.2),
		check("tcp", "[2606:4700:4700::1111]:443", "IPv6", Blocked, Blocked, "no route", 0.1),
		check("become-root", "a change to uid 0", "", Blocked, Blocked, "not permitted", 0),
		check("required", "api.anthropic.com:443", "", Reachable, Reachable, "160.79.104.10, TLS 1.3", 84.3),
		check("required", "github.com:22", "", Reachable, Reachable, "140.82.121.4", 30),
	}
	if fail {
		checks[3] = check("tcp", "1.1.1.1:80", "IPv4", Blocked, Reachable, "answered over TCP", 12)
		checks[6] = check("become-root", "a change to uid 0", "", Blocked, Reachable, "was allowed", 0)
		checks[7] = check("required", "api.anthropic.com:443", "", Reachable, Blocked, "connection failed: refused", 201)
		checks[8] = check("required", "github.com:22", "", Reachable, Unknown, "interrupted: context canceled", 201)
	}
	return NewReport(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), 1001*time.Millisecond, checks)
}

// The golden files are the public form of a report: for people, and for machines.
func TestReportGolden(t *testing.T) {
	for name, fail := range map[string]bool{"passed": false, "failed": true} {
		r := testReport(fail)
		var table, color bytes.Buffer
		if err := errors.Join(r.WriteTable(&table, false), r.WriteTable(&color, true)); err != nil {
			t.Fatal(err)
		}
		doc, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		for file, got := range map[string][]byte{name + ".golden.txt": table.Bytes(), name + ".golden.json": append(doc, '\n')} {
			want, err := os.ReadFile(filepath.Join("testdata", file))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %v\n%s", file, err, got)
			}
		}
		plain := strings.NewReplacer("\x1b[32m", "", "\x1b[31;1m", "", "\x1b[0m", "").Replace(color.String())
		if plain != table.String() || plain == color.String() {
			t.Errorf("with colour:\n%s", color.String())
		}
	}
}

func TestFailures(t *testing.T) {
	want := []string{
		"1.1.1.1:80 answered over TCP, which should be blocked",
		"a change to uid 0 was allowed, which should be blocked",
		"api.anthropic.com:443 should be reachable: connection failed: refused",
		"github.com:22 (required) could not be checked: interrupted: context canceled",
	}
	if got := testReport(true).Failures(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := testReport(false).Failures(); len(got) != 0 {
		t.Errorf("%q", got)
	}
	if got := (Report{}).Failures(); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{"refused": "refused", "a\x1b[31m\n": "a?[31m?", "\xff\u202e": "??", "é": "é"} {
		if got := Clean(in); got != want {
			t.Errorf("clean(%q) = %q", in, got)
		}
	}
	if got := Clean(strings.Repeat("é", 1000)); len(got) > maxText || !strings.HasSuffix(got, "é...") {
		t.Errorf("%d bytes, %q", len(got), got)
	}
}

// TestAnswered: a report that leaves out a check of the plan, or wants another outcome of it, is none.
func TestAnswered(t *testing.T) {
	p := DefaultPlan("denied.test")
	p.Block, p.Required, p.Reach = []Target{{Name: "b.test", Port: 1}}, []Target{{Name: "r.test", Port: 443}}, []Target{{Name: "o.test", Port: 2}}
	p.Inspected = []Target{{Name: "i.test", Port: 443}}
	var checks []Check
	blocked := func(name string, targets ...string) {
		for _, target := range targets {
			checks = append(checks, Check{Name: name, Target: target, Want: Blocked, Got: Blocked, OK: true})
		}
	}
	for _, s := range p.DNS {
		blocked("dns-direct", s.String()+"/udp", s.String()+"/tcp")
	}
	blocked("denied-name", "denied.test:443")
	blocked("tcp", written(p.TCP)...)
	blocked("udp", written(p.UDP)...)
	blocked("ping", written(p.Ping)...)
	blocked("metadata", written(p.Metadata)...)
	blocked("block", "b.test:1")
	blocked("inspected", "i.test:443")
	for name, target := range map[string]string{"required": "r.test:443", "reach": "o.test:2"} {
		checks = append(checks, Check{Name: name, Target: target, Want: Reachable, Got: Reachable, OK: true})
	}
	if err := p.Answered(Report{Checks: checks}); err != nil {
		t.Fatal(err)
	}
	for i, c := range checks {
		if err := p.Answered(Report{Checks: slices.Delete(slices.Clone(checks), i, i+1)}); err == nil {
			t.Errorf("left out, and nobody notices: %+v", c)
		}
		turned := slices.Clone(checks)
		turned[i].Want, turned[i].Got = turned[i].Want+"?", turned[i].Got+"?"
		if err := p.Answered(Report{Checks: turned}); err == nil {
			t.Errorf("wants something else, and nobody notices: %+v", c)
		}
	}
}
