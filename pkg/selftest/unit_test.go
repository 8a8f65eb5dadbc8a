package selftest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

func TestRefusals(t *testing.T) {
	tests := []struct {
		err error
		got string
	}{
		{unix.ECONNREFUSED, Blocked}, {unix.EHOSTUNREACH, Blocked}, {unix.ENETUNREACH, Blocked}, {unix.EADDRNOTAVAIL, Blocked},
		{unix.EAFNOSUPPORT, Blocked}, {unix.EPERM, Blocked}, {unix.EACCES, Blocked}, {unix.ETIMEDOUT, Blocked},
		{os.ErrDeadlineExceeded, Blocked}, {context.DeadlineExceeded, Blocked}, {fmt.Errorf("dial: %w", os.NewSyscallError("connect", unix.ECONNREFUSED)), Blocked},
		// None of these says anything about the network.
		{unix.EMFILE, Unknown}, {unix.ENFILE, Unknown}, {unix.ENOMEM, Unknown}, {unix.ENOBUFS, Unknown}, {unix.EAGAIN, Unknown},
		{unix.EBADF, Unknown}, {context.Canceled, Unknown}, {errors.New("odd"), Unknown},
	}
	for _, tt := range tests {
		if o := refusal(tt.err); o.got != tt.got || o.detail == "" {
			t.Errorf("%v: %+v, want %s", tt.err, o, tt.got)
		}
	}
}

// Giving up is not evidence.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, o := range []outcome{blocked(noAnswer), blocked("refused"), unknown(errors.New("x"))} {
		if got := settle(ctx, o); got.got != Unknown {
			t.Errorf("%+v became %+v", o, got)
		}
	}
	if got := settle(ctx, reachable("answered")); got.got != Reachable {
		t.Errorf("what was seen to be open is now %+v", got)
	}
	if got := settle(t.Context(), blocked("refused")); got != blocked("refused") {
		t.Errorf("%+v", got)
	}
}

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

// A plan that lost a part of the wall does not pass; it is not even tried here.
func TestPlanIncomplete(t *testing.T) {
	if m := DefaultPlan("example.com").missing(); len(m) != 0 {
		t.Errorf("missing: %q", m)
	}
	if m := DefaultPlan().missing(); len(m) != 1 || m[0] != "denied names" {
		t.Errorf("missing: %q", m)
	}
	var names []string
	for _, pr := range probesOf(Plan{}, "/nonexistent") {
		if pr.check.Name == "plan" {
			names = append(names, pr.check.Target)
			if c := pr.do(t.Context()); c.OK || c.Got != Unknown {
				t.Errorf("%+v", c)
			}
		}
	}
	if len(names) != 6 {
		t.Errorf("missing: %q", names)
	}
}

// The plan covers what was promised, in both families.
func TestDefaultPlan(t *testing.T) {
	count := make(map[string]int)
	p := DefaultPlan("example.com")
	p.System = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53")}
	for _, pr := range probesOf(p, "/nonexistent") {
		if pr.check.Want != Blocked || pr.timeout != time.Second {
			t.Errorf("%+v", pr)
		}
		count[pr.check.Name+" "+pr.check.Family]++
	}
	want := map[string]int{"dns-system IPv4": 2, "dns-direct IPv4": 6, "dns-direct IPv6": 4, "denied-name ": 1, "tcp IPv4": 12, "tcp IPv6": 8,
		"udp IPv4": 3, "udp IPv6": 2, "ping IPv4": 3, "ping IPv6": 2, "metadata IPv4": 3, "metadata IPv6": 1, "raw-socket ": 3,
		"packet-socket ": 2, "vsock-socket ": 1, "net-admin ": 1, "become-root ": 1, "other-network ": 1}
	for k, n := range want {
		if count[k] != n {
			t.Errorf("%s: %d, want %d", k, count[k], n)
		}
		delete(count, k)
	}
	if len(count) != 0 {
		t.Errorf("also: %v", count)
	}
}

// TestWhyNot: the reason is the server's own, and never a choice of two.
func TestWhyNot(t *testing.T) {
	reply := func(rcode int, code uint16, text string, addrs ...string) *dns.Msg {
		m := new(dns.Msg).SetQuestion("llm.test.", dns.TypeA)
		m.Rcode = rcode
		for _, s := range addrs {
			m.Answer = append(m.Answer, a("llm.test", s))
		}
		if code != 0 {
			m.SetEdns0(1232, false)
			m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_EDE{InfoCode: code, ExtraText: text})
		}
		return m
	}
	for want, m := range map[string]*dns.Msg{
		"the name does not exist, say the DNS servers that agent-init asks (NXDOMAIN)": reply(dns.RcodeNameError, 0, ""),
		"the name exists, and has no address":                                          reply(dns.RcodeSuccess, 0, ""),
		"the name is not resolved: not in the allowlist: agent-init explain llm.test":  reply(dns.RcodeNameError, dns.ExtendedErrorCodeBlocked, "not in the allowlist: agent-init explain llm.test"),
		"the name is not resolved: the policy does not allow it":                       reply(dns.RcodeNameError, dns.ExtendedErrorCodeBlocked, ""),
		"the name is not resolved: no answer is left: a private address (10.0.0.1)":    reply(dns.RcodeSuccess, dns.ExtendedErrorCodeBlocked, "no answer is left: a private address (10.0.0.1)"),
		"the name is not resolved: no upstream answered: 192.0.2.53:53: no answer":     reply(dns.RcodeServerFailure, dns.ExtendedErrorCodeNetworkError, "no upstream answered: 192.0.2.53:53: no answer"),
		"the name is not resolved: ?[2Jred":                                            reply(dns.RcodeServerFailure, dns.ExtendedErrorCodeNotReady, "\x1b[2Jred"),
		"":                                                                             reply(dns.RcodeSuccess, 0, "", "192.0.2.1"),
	} {
		if got := whyNot(m); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestNameservers(t *testing.T) {
	tests := map[string]string{
		"": "127.0.0.1:53",
		"# comment\nnameserver 10.0.0.1\nsearch x\nnameserver fe80::1%eth0 # x\n nameserver\t2001:db8::1": "10.0.0.1:53 [fe80::1%eth0]:53 [2001:db8::1]:53",
		"nameserver bogus\nnameserver\nnameservers 10.0.0.1\n":                                            "127.0.0.1:53",
	}
	for text, want := range tests {
		file := filepath.Join(t.TempDir(), "resolv.conf")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range nameservers(file) {
			got = append(got, s.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := nameservers("/nonexistent"); len(got) != 1 {
		t.Errorf("no file: %v", got)
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
		check("tcp", "1.1.1.1:80", "IPv4", Blocked, Blocked, noAnswer, 1000),
		check("tcp", "8.8.8.8:443", "IPv4", Blocked, Blocked, "refused", 0.2),
		check("tcp", "[2606:4700:4700::1111]:443", "IPv6", Blocked, Blocked, "no route", 0.1),
		check("become-root", "a change to uid 0", "", Blocked, Blocked, "not permitted", 0),
		check("required", "api.anthropic.com:443", "", Reachable, Reachable, "160.79.104.10, TLS 1.3", 84.3),
		check("required", "github.com:22", "", Reachable, Reachable, "140.82.121.4", 30),
	}
	if fail {
		checks[3] = check("tcp", "1.1.1.1:80", "IPv4", Blocked, Reachable, "answered over TCP", 12)
		checks[6] = check("become-root", "a change to uid 0", "", Blocked, Reachable, allowed, 0)
		checks[7] = check("required", "api.anthropic.com:443", "", Reachable, Blocked, "connection failed: refused", 201)
		checks[8] = check("required", "github.com:22", "", Reachable, Unknown, "interrupted: context canceled", 201)
	}
	return newReport(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), 1001*time.Millisecond, checks)
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
		if got := clean(in); got != want {
			t.Errorf("clean(%q) = %q", in, got)
		}
	}
	if got := clean(strings.Repeat("é", 1000)); len(got) > maxText || !strings.HasSuffix(got, "é...") {
		t.Errorf("%d bytes, %q", len(got), got)
	}
}
