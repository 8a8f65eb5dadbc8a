package resolver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
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
	if got := r.Stats(); got.Denied.Load() != 12*5 || got.Asked.Load() != 0 { // A and AAAA are one look-up
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
	q := asks("oK.TeSt.", dns.TypeA)
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
	most := r.policy.Load().Settings.Limits.AddrsPerName
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
		if l := r.leased(); l[0].ttl != time.Duration(tt.want)*time.Second+leaseGrace {
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
	r.patience, r.admitWait = 100*time.Millisecond, time.Millisecond
	r.admit = func(ctx context.Context, _ lease) ([]netip.Addr, error) { <-ctx.Done(); return nil, ctx.Err() }
	r.expire()
	if rcode, _ := r.lookupA("ok.test."); rcode != dns.RcodeServerFailure {
		t.Errorf("a firewall that hangs: code %d", rcode)
	}
}

// TestE15AdmitHasTheQuestionsTime: a firewall that is slow may take all the time that
// the client has, also if the upstream was quick.
func TestE15AdmitHasTheQuestionsTime(t *testing.T) {
	r := newRig(t, "ok.test")
	r.up.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.1")
	r.patience, r.admitWait = time.Minute, time.Nanosecond
	r.admit = func(ctx context.Context, l lease) ([]netip.Addr, error) {
		time.Sleep(time.Millisecond)
		return l.addrs, ctx.Err()
	}
	if rcode, got := r.lookupA("ok.test."); rcode != dns.RcodeSuccess || !slices.Equal(got, []string{"192.0.2.1"}) {
		t.Errorf("code %d, %v", rcode, got)
	}
}
