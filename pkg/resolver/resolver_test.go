package resolver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/audit"
)

// wantNothing fails if any of the upstream's questions has part in it.
func (r *rig) wantNothing(part string) {
	r.t.Helper()
	for _, q := range r.up.asked() {
		if strings.Contains(strings.ToLower(q), part) {
			r.t.Errorf("the upstream was asked %q", q)
		}
	}
}

func TestE01E02DeniedNameStaysInside(t *testing.T) {
	r := newRig(t, "ok.test", "*.wild.test", "!no.wild.test")
	r.up.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.1")
	for _, name := range []string{
		"mfrggzdf.evil.test.", "evil.test.", "test.", ".", "notok.test.", "ok.test.evil.test.", "a.ok.test.",
		"no.wild.test.", "notwild.test.", "4.3.2.1.in-addr.arpa.", "use-application-dns.net.", "_dns.resolver.arpa.",
	} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT, dns.TypeHTTPS, dns.TypePTR, dns.TypeANY} {
			m := r.ask(name, qtype)
			if m.Rcode != dns.RcodeNameError || len(m.Answer) != 0 {
				t.Errorf("%s %s: %v", name, dns.Type(qtype), m)
			}
		}
	}
	if got := r.up.asked(); len(got) != 0 {
		t.Errorf("the upstream was asked %q", got)
	}
	if got := r.Stats(); got.Denied != 12*6 || got.Asked != 0 {
		t.Errorf("stats %+v", got)
	}
}

func TestDenialSaysWhatToDo(t *testing.T) {
	r := newRig(t, "ok.test", "!gist.test")
	m := r.ask("Evil.Test.", dns.TypeA)
	if code, text := ede(m); code != dns.ExtendedErrorCodeBlocked || text != "not in the allowlist: agent-init explain evil.test" {
		t.Errorf("EDE %d %q", code, text)
	}
	if soa, ok := m.Ns[0].(*dns.SOA); !ok || soa.Hdr.Ttl > 5 || soa.Minttl > 5 {
		t.Errorf("a grant would not work soon: %v", m.Ns)
	}
	plain := new(dns.Msg)
	plain.SetQuestion("evil.test.", dns.TypeA)
	if m := r.send(plain); m.IsEdns0() != nil || m.Rcode != dns.RcodeNameError {
		t.Errorf("without EDNS: %v", m)
	}
	r.ask("gist.test.", dns.TypeA)
	events := r.recorded(audit.Deny)
	if len(events) != 3 {
		t.Fatalf("recorded %+v", events)
	}
	if e := events[0]; e.Kind != audit.DNS || e.Name != "evil.test" || e.Rule != "" || e.Reason != "not in the allowlist" {
		t.Errorf("recorded %+v", e)
	}
	if e := events[2]; e.Name != "gist.test" || e.Rule != "allowlist.txt:2" {
		t.Errorf("recorded %+v", e)
	}
}

func TestOddBytesAreDeniedAndEscaped(t *testing.T) {
	r := newRig(t, "ok.test", "*.wild.test")
	for _, name := range []string{"\x02ok\x05te\nst\x00", "\x07ok.test\x00", "\x03a b\x04wild\x04test\x00", "\x02\xc3\xbc\x04wild\x04test\x00"} {
		m := new(dns.Msg)
		if err := m.Unpack(r.raw(packet(0, [4]uint16{1}, name+"\x00\x01\x00\x01"))); err != nil {
			t.Fatal(err)
		}
		if m.Rcode != dns.RcodeNameError {
			t.Errorf("%q: %v", name, m)
		}
	}
	if got := r.up.asked(); len(got) != 0 {
		t.Errorf("the upstream was asked %q", got)
	}
	for _, e := range r.recorded(audit.Deny) {
		if strings.ContainsFunc(e.Name, func(c rune) bool { return c <= ' ' || c > '~' }) || e.Reason != "not a host name" {
			t.Errorf("recorded %+v", e)
		}
	}
}

func TestE06OnlyAddressesAreAnswered(t *testing.T) {
	r := newRig(t, "ok.test")
	r.up.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.1")
	r.up.set(t, "ok.test.", "AAAA", "ok.test. 60 AAAA 2001:db8::1")
	for qtype := uint16(0); qtype <= 300; qtype++ {
		m := r.ask("ok.test.", qtype)
		want := 0
		if qtype == dns.TypeA || qtype == dns.TypeAAAA {
			want = 1
		}
		if m.Rcode != dns.RcodeSuccess || len(m.Answer) != want {
			t.Errorf("%s: %v", dns.Type(qtype), m)
		}
	}
	if got := r.up.asked(); len(got) != 2 {
		t.Errorf("the upstream was asked %q", got)
	}
}

func TestE07UpstreamSeesOnlyTheName(t *testing.T) {
	r := newRig(t, "ok.test")
	r.up.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.1")
	q := question("oK.TeSt.", dns.TypeA)
	q.Id = 0x4242
	q.CheckingDisabled, q.AuthenticatedData = true, true
	opt := q.IsEdns0()
	opt.SetDo()
	opt.SetUDPSize(1400)
	opt.Option = append(opt.Option,
		&dns.EDNS0_LOCAL{Code: 65001, Data: []byte("secret")},
		&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "24a5ac1122334455"},
		&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: []byte{1, 2, 3, 0}},
		&dns.EDNS0_PADDING{Padding: []byte("more secrets")})
	m := r.send(q)
	if got := addresses(m); !slices.Equal(got, []string{"192.0.2.1"}) {
		t.Fatalf("answer %v", m)
	}
	if m.Question[0].Name != "oK.TeSt." || m.Answer[0].Header().Name != "oK.TeSt." {
		t.Errorf("the client's case is lost: %v", m)
	}
	got := r.up.received()[0]
	want := new(dns.Msg)
	want.SetQuestion("ok.test.", dns.TypeA)
	want.SetEdns0(1232, false)
	want.Id = got.Id
	if got.String() != want.String() {
		t.Errorf("the upstream got\n%v, want\n%v", got, want)
	}
	if got.Id == 0x4242 {
		t.Error("the client's identifier reached the upstream")
	}
}

func TestE08SecondQuestion(t *testing.T) {
	r := newRig(t, "ok.test")
	m := new(dns.Msg)
	err := m.Unpack(r.raw(packet(flagRD, [4]uint16{2}, okA+"\x04evil\x04test\x00\x00\x01\x00\x01")))
	if err != nil || m.Rcode != dns.RcodeFormatError {
		t.Errorf("%v, %v", m, err)
	}
	if got := r.up.asked(); len(got) != 0 {
		t.Errorf("the upstream was asked %q", got)
	}
}

func TestE09E10SpecialAddressesAreStripped(t *testing.T) {
	r := newRig(t, "ok.test", "corp.example private")
	special4 := []string{"127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "168.63.129.16", "0.0.0.0",
		"100.64.0.1", "224.0.0.1", "255.255.255.255"}
	special6 := []string{"::1", "::", "fd00:ec2::254", "fe80::1", "fc00::1", "ff02::1", "::ffff:169.254.169.254", "::169.254.169.254",
		"64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1", "::ffff:192.0.2.1"}
	ask := func(qtype, addr string, good ...string) *dns.Msg {
		var records []string
		for _, a := range append(good, addr) {
			records = append(records, "ok.test. 60 "+qtype+" "+a)
		}
		r.up.set(t, "ok.test.", qtype, records...)
		r.expire()
		return r.ask("ok.test.", dns.StringToType[qtype])
	}
	for _, tt := range []struct {
		qtype, good string
		special     []string
	}{{"A", "192.0.2.1", special4}, {"AAAA", "2001:db8::1", special6}} {
		for _, addr := range tt.special {
			m := ask(tt.qtype, addr)
			if m.Rcode != dns.RcodeSuccess || len(m.Answer) != 0 {
				t.Errorf("%s: %v", addr, m)
			}
			if code, text := ede(m); code != dns.ExtendedErrorCodeBlocked || !strings.HasPrefix(text, "no answer is left: ") {
				t.Errorf("%s: EDE %d %q", addr, code, text)
			}
			if m := ask(tt.qtype, addr, tt.good); !slices.Equal(addresses(m), []string{tt.good}) {
				t.Errorf("%s beside %s: %v", addr, tt.good, m)
			}
		}
	}
	for _, l := range r.leased() {
		for _, a := range l.addrs {
			if s := a.String(); s != "192.0.2.1" && s != "2001:db8::1" {
				t.Errorf("a lease of %v was asked for", a)
			}
		}
	}
	events := r.recorded(audit.Deny)
	if want := 2 * (len(special4) + len(special6)); len(events) != want {
		t.Errorf("%d events for %d stripped addresses", len(events), want)
	}
	if e := events[2]; e.IP != "10.1.2.3" || e.Rule != "allowlist.txt:1" || !strings.Contains(e.Reason, "private") {
		t.Errorf("recorded %+v", e)
	}

	r.up.set(t, "corp.example.", "A", "corp.example. 60 A 10.1.2.3", "corp.example. 60 A 169.254.169.254", "corp.example. 60 A 127.0.0.1")
	if _, got := r.lookupA("corp.example."); !slices.Equal(got, []string{"10.1.2.3"}) {
		t.Errorf("a private name has %v", got)
	}
}

func TestE11OnlyTheChainCounts(t *testing.T) {
	r := newRig(t, "ok.test", "!tracker.test")
	r.up.set(t, "ok.test.", "A",
		"evil.test. 60 A 198.51.100.66",
		"cdn.example. 60 CNAME edge.cdn.example.",
		"OK.test. 300 CNAME CDN.example.",
		"edge.cdn.example. 20 A 192.0.2.7",
		"cdn.example. 60 TXT \"x\"")
	if rcode, got := r.lookupA("ok.test."); rcode != 0 || !slices.Equal(got, []string{"192.0.2.7"}) {
		t.Errorf("code %d, %v", rcode, got)
	}
	l := r.leased()
	if len(l) != 1 || l[0].name != "ok.test" || !slices.Equal(l[0].addrs, []netip.Addr{netip.MustParseAddr("192.0.2.7")}) {
		t.Errorf("leased %v", l)
	}
	e := r.recorded(audit.Allow)[0]
	if e.IP != "192.0.2.7" || e.Rule != "allowlist.txt:1" || !strings.Contains(e.Reason, "by way of cdn.example, edge.cdn.example") {
		t.Errorf("recorded %+v", e)
	}

	r.expire()
	r.up.set(t, "ok.test.", "A", "ok.test. 60 CNAME tracker.test.", "tracker.test. 60 A 192.0.2.8")
	if rcode, got := r.lookupA("ok.test."); rcode != 0 || len(got) != 0 {
		t.Errorf("an alias of a denied name: code %d, %v", rcode, got)
	}
}

func TestE12StuffedAnswer(t *testing.T) {
	r := newRig(t, "ok.test", "ok2.test")
	var records []string
	for i := range 4000 {
		records = append(records, fmt.Sprintf("ok.test. 60 A 198.51.%d.%d", i/250, i%250))
	}
	r.up.set(t, "ok.test.", "A", records...)
	r.up.set(t, "ok2.test.", "A", "ok2.test. 60 A 198.51.100.1")
	most := r.policy.Load().Settings().Limits.AddrsPerName
	offered := make(map[string]bool)
	for range 20 {
		rcode, got := r.lookupA("ok.test.")
		if rcode != 0 || len(got) != most {
			t.Fatalf("code %d, %d addresses, want %d", rcode, len(got), most)
		}
		for _, a := range got {
			offered[a] = true
		}
		r.expire()
	}
	for _, l := range r.leased() {
		if len(l.addrs) > most {
			t.Errorf("a lease of %d addresses", len(l.addrs))
		}
	}
	if len(offered) <= most {
		t.Error("it is always the same addresses that are kept")
	}
	if _, got := r.lookupA("ok2.test."); len(got) != 1 {
		t.Errorf("another name has %v", got)
	}
}

func TestE13TTLIsClamped(t *testing.T) {
	for _, tt := range []struct {
		ttl  uint32
		want uint32
	}{{0, 1}, {1, 1}, {77, 77}, {300, 300}, {301, 300}, {1<<31 - 1, 300}, {1 << 31, 1}, {1<<32 - 1, 1}} {
		r := newRig(t, "ok.test")
		r.up.set(t, "ok.test.", "A", "ok.test. 86400 CNAME x.example.", fmt.Sprintf("x.example. %d A 192.0.2.1", tt.ttl))
		m := r.ask("ok.test.", dns.TypeA)
		if len(m.Answer) != 1 || m.Answer[0].Header().Ttl != tt.want {
			t.Errorf("TTL %d: %v, want %d", tt.ttl, m.Answer, tt.want)
		}
		if l := r.leased(); l[0].ttl < time.Duration(tt.want)*time.Second || l[0].ttl > 6*time.Minute {
			t.Errorf("TTL %d: leased for %v", tt.ttl, l[0].ttl)
		}
	}
	p := policyOf(t, "dns: {max_ttl: 10s}", "", "ok.test")
	r := newRigWith(t, func(*Config) {}, p)
	r.up.set(t, "ok.test.", "A", "ok.test. 500 A 192.0.2.1")
	if m := r.ask("ok.test.", dns.TypeA); m.Answer[0].Header().Ttl != 10 {
		t.Errorf("the policy's max_ttl is ignored: %v", m.Answer)
	}
}

func TestE15AdmittedBeforeAnswered(t *testing.T) {
	r := newRig(t, "ok.test", "part.test", "none.test")
	inside, release := make(chan struct{}), make(chan struct{})
	r.admit = func(_ context.Context, l lease) ([]netip.Addr, error) {
		switch l.name {
		case "part.test":
			return append(l.addrs[:1:1], netip.MustParseAddr("203.0.113.9")), nil
		case "none.test":
			return nil, nil
		}
		close(inside)
		<-release
		return l.addrs, nil
	}
	r.up.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.1")
	r.up.set(t, "part.test.", "A", "part.test. 60 A 192.0.2.1", "part.test. 60 A 192.0.2.2")
	r.up.set(t, "none.test.", "A", "none.test. 60 A 192.0.2.1")
	answered := make(chan []string, 1)
	go func() {
		_, got := r.lookupA("ok.test.")
		answered <- got
	}()
	<-inside
	select {
	case got := <-answered:
		t.Fatalf("answered %v before the firewall was ready", got)
	case <-time.After(20 * time.Millisecond): // nothing can be awaited that must not happen
	}
	close(release)
	if got := <-answered; !slices.Equal(got, []string{"192.0.2.1"}) {
		t.Errorf("answered %v", got)
	}
	if _, got := r.lookupA("part.test."); !slices.Equal(got, []string{"192.0.2.1"}) {
		t.Errorf("of a lease granted in part: %v", got)
	}
	if rcode, got := r.lookupA("none.test."); rcode != dns.RcodeServerFailure || len(got) != 0 {
		t.Errorf("of a lease not granted: %d, %v", rcode, got)
	}
}

func TestE15FailedAdmitIsServfail(t *testing.T) {
	r := newRig(t, "ok.test")
	r.up.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.1")
	r.admit = func(context.Context, lease) ([]netip.Addr, error) { return nil, errors.New("set is full") }
	if rcode, got := r.lookupA("ok.test."); rcode != dns.RcodeServerFailure || len(got) != 0 {
		t.Errorf("code %d, %v", rcode, got)
	}
	if e := r.recorded(audit.Fault); len(e) != 1 || e[0].Name != "ok.test" || !strings.Contains(e[0].Reason, "set is full") {
		t.Errorf("recorded %+v", e)
	}
	r.admitWait = time.Millisecond
	r.admit = func(ctx context.Context, _ lease) ([]netip.Addr, error) { <-ctx.Done(); return nil, ctx.Err() }
	r.expire()
	if rcode, _ := r.lookupA("ok.test."); rcode != dns.RcodeServerFailure {
		t.Errorf("a firewall that hangs: code %d", rcode)
	}
}

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
	if got := r.Stats(); got.Cached != 29 || got.Allowed != 30 || got.Asked != 1 || got.Queries != 30 || got.Cache != 1 {
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
	key := cacheKey(nil, []byte("ok.test"), typeA)
	e := r.cache.get(key, r.policy.Load(), time.Now())
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
	r.exchange = func(context.Context, string, uint16) (*dns.Msg, error) {
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
			q := question([]string{"ok.test.", "OK.test."}[i%2], dns.TypeA)
			q.Id = uint16(i)
			got <- r.send(q)
		}()
	}
	asked.Wait()
	for {
		r.Server.mu.Lock()
		n := len(r.lookups[string(cacheKey(nil, []byte("ok.test"), typeA))].waiters)
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

func TestNewRefusesNonsense(t *testing.T) {
	good := newRig(t, "ok.test").config
	for what, change := range map[string]func(*Config){
		"no policy":     func(c *Config) { c.Policy = nil },
		"no admit":      func(c *Config) { c.Admit = nil },
		"no upstream":   func(c *Config) { c.Upstreams = nil },
		"zero upstream": func(c *Config) { c.Upstreams = []Upstream{{}} },
		"a limit < 0":   func(c *Config) { c.Limits.TCPConns = -1 },
		"a time < 0":    func(c *Config) { c.Limits.TCPIdle = -1 },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
