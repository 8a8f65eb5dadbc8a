package resolver

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/audit"
)

// Monitor mode answers for every name, leases what the policy admits and nothing
// else, and never gives an address that no policy could.
func TestMonitor(t *testing.T) {
	p := policyOf(t, "", "192.0.2.7 host.test\n", "ok.test", "!denied.test", "host.test")
	r := newRigWith(t, func(c *Config) { c.Monitor = true }, p)
	never := []string{"127.0.0.1", "169.254.169.254", "224.0.0.1"}
	with := func(name string, addrs ...string) (records []string) {
		for _, a := range append(addrs, never...) {
			records = append(records, name+" 60 A "+a)
		}
		return records
	}
	r.up.set(t, "ok.test.", "A", with("ok.test.", "192.0.2.1", "10.0.0.1")...)
	r.up.set(t, "new.test.", "A", with("new.test.", "192.0.2.2", "10.0.0.2")...)
	r.up.set(t, "denied.test.", "A", with("denied.test.", "192.0.2.3")...)
	r.up.set(t, "only.test.", "A", with("only.test.")...)
	r.up.set(t, "new.test.", "AAAA", "new.test. 60 AAAA ::ffff:192.0.2.9", "new.test. 60 AAAA 2001:db8::2")
	r.up.set(t, "1.2.0.192.in-addr.arpa.", "A", "1.2.0.192.in-addr.arpa. 60 A 192.0.2.4")
	var many, most []string
	for i := range maxLet + 4 {
		a := netip.AddrFrom4([4]byte{198, 51, 100, byte(100 + i)}).String()
		if many = append(many, "many.test. 60 A "+a); i < maxLet {
			most = append(most, a)
		}
	}
	r.up.set(t, "many.test.", "A", many...)
	for _, tt := range []struct {
		name  string
		qtype uint16
		want  []string
	}{
		{"ok.test.", dns.TypeA, []string{"10.0.0.1", "192.0.2.1"}},
		{"new.test.", dns.TypeA, []string{"10.0.0.2", "192.0.2.2"}},
		{"new.test.", dns.TypeAAAA, []string{"2001:db8::2"}},
		{"denied.test.", dns.TypeA, []string{"192.0.2.3"}},
		{"only.test.", dns.TypeA, nil},
		{"host.test.", dns.TypeA, []string{"192.0.2.7"}},
		{"new.test.", dns.TypeTXT, nil},
		{"1.2.0.192.in-addr.arpa.", dns.TypeA, nil},
		{"many.test.", dns.TypeA, most},
	} {
		m := r.ask(tt.name, tt.qtype)
		got := addresses(m)
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s %s: %v, want %v", tt.name, dns.Type(tt.qtype), got, tt.want)
		}
	}
	for _, asked := range r.up.asked() {
		if asked == "1.2.0.192.in-addr.arpa. A" || asked == "new.test. TXT" {
			t.Errorf("the upstream was asked for %s", asked)
		}
	}
	for _, l := range r.leased() {
		if l.name != "ok.test" || len(l.addrs) != 1 || l.addrs[0].String() != "192.0.2.1" {
			t.Errorf("a lease was asked for: %+v", l)
		}
	}
	seen := map[string]bool{}
	for _, e := range r.recorded(audit.Allow) {
		if e.Enforce == audit.Deny {
			seen[e.Name+" "+e.IP] = true
		}
	}
	for _, want := range []string{"ok.test 10.0.0.1", "new.test 192.0.2.2", "new.test 10.0.0.2", "denied.test 192.0.2.3", "only.test "} {
		if !seen[want] {
			t.Errorf("not recorded with both verdicts: %s; only %v", want, seen)
		}
	}
	if seen["ok.test 192.0.2.1"] {
		t.Error("what the policy allows is recorded as if it did not")
	}
}
