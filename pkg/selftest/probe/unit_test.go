package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/selftest"
)

func TestRefusals(t *testing.T) {
	tests := []struct {
		err error
		got string
	}{
		{unix.ECONNREFUSED, selftest.Blocked}, {unix.EHOSTUNREACH, selftest.Blocked}, {unix.ENETUNREACH, selftest.Blocked}, {unix.EADDRNOTAVAIL, selftest.Blocked},
		{unix.EAFNOSUPPORT, selftest.Blocked}, {unix.EPERM, selftest.Blocked}, {unix.EACCES, selftest.Blocked}, {unix.ETIMEDOUT, selftest.Blocked},
		{os.ErrDeadlineExceeded, selftest.Blocked}, {context.DeadlineExceeded, selftest.Blocked}, {fmt.Errorf("dial: %w", os.NewSyscallError("connect", unix.ECONNREFUSED)), selftest.Blocked},
		// None of these says anything about the network.
		{unix.EMFILE, selftest.Unknown}, {unix.ENFILE, selftest.Unknown}, {unix.ENOMEM, selftest.Unknown}, {unix.ENOBUFS, selftest.Unknown}, {unix.EAGAIN, selftest.Unknown},
		{unix.EBADF, selftest.Unknown}, {context.Canceled, selftest.Unknown}, {errors.New("odd"), selftest.Unknown},
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
		if got := settle(ctx, o); got.got != selftest.Unknown {
			t.Errorf("%+v became %+v", o, got)
		}
	}
	if got := settle(ctx, reachable("answered")); got.got != selftest.Reachable {
		t.Errorf("what was seen to be open is now %+v", got)
	}
	if got := settle(t.Context(), blocked("refused")); got != blocked("refused") {
		t.Errorf("%+v", got)
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

// A plan that lost a part of the wall does not pass; it is not even tried here.
func TestPlanIncomplete(t *testing.T) {
	if m := selftest.DefaultPlan("example.com").Missing(); len(m) != 0 {
		t.Errorf("missing: %q", m)
	}
	if m := selftest.DefaultPlan().Missing(); len(m) != 1 || m[0] != "denied names" {
		t.Errorf("missing: %q", m)
	}
	var names []string
	for _, pr := range probesOf(plan{}, "/nonexistent") {
		if pr.check.Name == "plan" {
			names = append(names, pr.check.Target)
			if c := pr.do(t.Context()); c.OK || c.Got != selftest.Unknown {
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
	p := selftest.DefaultPlan("example.com")
	p.System = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53")}
	for _, pr := range probesOf(plan{p}, "/nonexistent") {
		if pr.check.Want != selftest.Blocked || pr.timeout != time.Second {
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
