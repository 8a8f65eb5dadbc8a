package resolver

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/internal/lab/issuer"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// several returns a rig whose upstreams are n nameservers, all knowing ok.test
// by an address of their own: 192.0.2.1, 192.0.2.2, …
func several(t *testing.T, n int) (*rig, *upstreams, []*nameserver) {
	t.Helper()
	var servers []*nameserver
	var list []policy.Upstream
	for i := range n {
		s := newNameserver(t)
		s.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2."+string(rune('1'+i)))
		servers = append(servers, s)
		list = append(list, policy.Upstream{Addr: s.addr})
	}
	r := newRigWith(t, func(c *Config) { c.Upstreams = list }, policyOf(t, "", "", "ok.test"))
	return r, r.quick(), servers
}

// TestUpstreamBelieve: what a server answers that is not believed is no answer, not
// even that it failed, and the next one is asked.
func TestUpstreamBelieve(t *testing.T) {
	for name, first := range map[string]func(dns.ResponseWriter, *dns.Msg) *dns.Msg{"an answer": nil, "a failure": code(dns.RcodeRefused)} {
		_, u, servers := several(t, 2)
		if first != nil {
			servers[0].script("ok.test.", "A", first)
		}
		doubt := errors.New("somebody else")
		u.believe = func(s policy.Upstream) error {
			if s.Addr == servers[0].addr {
				return doubt
			}
			return nil
		}
		m, err := u.exchange(context.Background(), question{"ok.test", dns.TypeA})
		if err != nil || len(m.Answer) != 1 || !strings.Contains(m.Answer[0].String(), "192.0.2.2") {
			t.Errorf("%s: got %v, %v", name, m, err)
		}
		u.believe = func(policy.Upstream) error { return doubt }
		if _, err := u.exchange(context.Background(), question{"ok.test", dns.TypeA}); !errors.Is(err, doubt) {
			t.Errorf("%s: nobody is believed, and yet: %v", name, err)
		}
	}
}

func silent(dns.ResponseWriter, *dns.Msg) *dns.Msg { return nil }

func code(rcode int) func(dns.ResponseWriter, *dns.Msg) *dns.Msg {
	return func(_ dns.ResponseWriter, q *dns.Msg) *dns.Msg {
		return new(dns.Msg).SetRcode(q, rcode)
	}
}

func TestFailover(t *testing.T) {
	r, u, servers := several(t, 3)
	want := func(what, addr string) {
		t.Helper()
		r.expire()
		if rcode, got := r.lookupA("ok.test."); rcode != 0 || !slices.Equal(got, []string{addr}) {
			t.Fatalf("%s: code %d, %v, want %s", what, rcode, got, addr)
		}
	}
	want("all work", "192.0.2.1")
	servers[0].script("ok.test.", "A", silent)
	want("the first is silent", "192.0.2.2")
	before := len(servers[0].asked())
	want("the first is known to be silent", "192.0.2.2")
	if n := len(servers[0].asked()); n != before {
		t.Error("a silent server was asked again at once")
	}
	for _, rcode := range []int{dns.RcodeServerFailure, dns.RcodeRefused} {
		servers[1].script("ok.test.", "A", code(rcode))
		want("the second fails", "192.0.2.3")
	}
	if s := u.servers[1]; s.failures != 0 {
		t.Error("a server that answers with a failure was taken for dead")
	}
	servers[0].set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.1")
	u.servers[0].down = time.Now() // its time is over
	want("the first is back", "192.0.2.1")
}

func TestFailedServerIsTriedByOne(t *testing.T) {
	u := newUpstreams([]policy.Upstream{{}, {}}, sourcePorts{})
	now := time.Now()
	u.servers[0].failed(now)
	if got := u.order(now); !slices.Equal(got, []int{1, 0}) {
		t.Errorf("order %v after a failure", got)
	}
	later := now.Add(retryFirst)
	if got := u.order(later); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("order %v when its time is over", got)
	}
	if got := u.order(later); !slices.Equal(got, []int{1, 0}) {
		t.Errorf("order %v while one question tries it", got)
	}
	for range 100 {
		u.servers[0].failed(now)
	}
	if d := u.servers[0].down.Sub(now); d != retryMost {
		t.Errorf("passed over for %v in the end", d)
	}
}

// TestNoUpstream: a container without DNS servers still refuses and fails
// properly.
func TestNoUpstream(t *testing.T) {
	if _, err := newUpstreams(nil, sourcePorts{}).exchange(t.Context(), question{"ok.test.", dns.TypeA}); err == nil {
		t.Error("an answer from nowhere")
	}
}

func TestAllUpstreamsFail(t *testing.T) {
	r, _, servers := several(t, 2)
	servers[0].script("ok.test.", "A", silent)
	servers[1].script("ok.test.", "A", code(dns.RcodeServerFailure))
	m := r.ask("ok.test.", dns.TypeA)
	if m.Rcode != dns.RcodeServerFailure {
		t.Errorf("answer %v", m)
	}
	if c, text := ede(m); c != dns.ExtendedErrorCodeNetworkError || !strings.HasPrefix(text, "no upstream answered: 127.0.0.1:") || !strings.Contains(text, "SERVFAIL") {
		t.Errorf("EDE %d %q", c, text)
	}
	e := r.recorded(audit.Fault)
	if len(e) != 1 || !strings.Contains(e[0].Reason, "no answer in time") || !strings.Contains(e[0].Reason, "SERVFAIL") {
		t.Errorf("recorded %+v", e)
	}
	asked := len(servers[1].asked())
	for range 5 {
		r.ask("ok.test.", dns.TypeA)
	}
	if n := len(servers[1].asked()); n > asked+2 { // the failure is kept for a second
		t.Errorf("clients that retry asked the upstream %d times more", n-asked)
	}
}

func TestOneServfailIsPassedOnAtOnce(t *testing.T) {
	r, _, servers := several(t, 1)
	servers[0].script("ok.test.", "A", code(dns.RcodeServerFailure))
	if rcode, _ := r.lookupA("ok.test."); rcode != dns.RcodeServerFailure {
		t.Errorf("code %d", rcode)
	}
	if n := len(servers[0].asked()); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestTruncatedAnswerComesOverTCP(t *testing.T) {
	r, _, servers := several(t, 1)
	servers[0].script("ok.test.", "A", func(w dns.ResponseWriter, q *dns.Msg) *dns.Msg {
		m := new(dns.Msg)
		m.SetReply(q)
		if w.LocalAddr().Network() == "udp" {
			m.Truncated = true
			return m
		}
		rr, _ := dns.NewRR("ok.test. 60 A 192.0.2.9")
		m.Answer = []dns.RR{rr}
		return m
	})
	if rcode, got := r.lookupA("ok.test."); rcode != 0 || !slices.Equal(got, []string{"192.0.2.9"}) {
		t.Errorf("code %d, %v", rcode, got)
	}
	if p := servers[0].received(); len(p) != 2 || p[0].Id == p[1].Id {
		t.Errorf("asked %v", p)
	}
}

// TestStream: where replies over UDP could not get in, none is asked for.
func TestStream(t *testing.T) {
	s := newNameserver(t)
	s.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.9")
	r := newRigWith(t, func(c *Config) { c.Upstreams, c.Stream = []policy.Upstream{{Addr: s.addr}}, true }, policyOf(t, "", "", "ok.test"))
	r.exchange = r.upstreams.Load().exchange // as New has made them
	if rcode, got := r.lookupA("ok.test."); rcode != 0 || !slices.Equal(got, []string{"192.0.2.9"}) {
		t.Errorf("code %d, %v", rcode, got)
	}
	if all, tcp := len(s.received()), s.askedByTCP(); all == 0 || tcp != all {
		t.Errorf("asked %d times, %d of them over TCP", all, tcp)
	}
}

func TestServerWithoutEDNS(t *testing.T) {
	r, _, servers := several(t, 1)
	servers[0].script("ok.test.", "A", func(_ dns.ResponseWriter, q *dns.Msg) *dns.Msg {
		m := new(dns.Msg)
		if q.IsEdns0() != nil {
			return m.SetRcodeFormatError(q)
		}
		m.SetReply(q)
		rr, _ := dns.NewRR("ok.test. 60 A 192.0.2.9")
		m.Answer = []dns.RR{rr}
		return m
	})
	if rcode, got := r.lookupA("ok.test."); rcode != 0 || !slices.Equal(got, []string{"192.0.2.9"}) {
		t.Errorf("code %d, %v", rcode, got)
	}
}

func TestForgedRepliesAreIgnored(t *testing.T) {
	forgeries := map[string]func(m *dns.Msg){
		"identifier":  func(m *dns.Msg) { m.Id++ },
		"name":        func(m *dns.Msg) { m.Question[0].Name = "evil.test." },
		"type":        func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA },
		"class":       func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS },
		"no question": func(m *dns.Msg) { m.Question = nil },
		"two":         func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) },
		"a query":     func(m *dns.Msg) { m.Response = false },
		"opcode":      func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify },
	}
	for what, forge := range forgeries {
		for _, times := range []int{1, 20} {
			r, _, servers := several(t, 1)
			servers[0].script("ok.test.", "A", func(w dns.ResponseWriter, q *dns.Msg) *dns.Msg {
				good, _ := dns.NewRR("ok.test. 60 A 192.0.2.1")
				bad, _ := dns.NewRR("ok.test. 60 A 198.51.100.66")
				if w.LocalAddr().Network() == "udp" {
					for range times {
						m := new(dns.Msg)
						m.SetReply(q)
						m.Answer = []dns.RR{bad}
						forge(m)
						w.WriteMsg(m)
						w.Write([]byte("not a message at all"))
					}
				}
				m := new(dns.Msg)
				m.SetReply(q)
				m.Answer = []dns.RR{good}
				return m
			})
			if rcode, got := r.lookupA("ok.test."); rcode != 0 || !slices.Equal(got, []string{"192.0.2.1"}) {
				t.Errorf("%s: code %d, %v", what, rcode, got)
			}
			if wantTCP := times == 20; servers[0].askedByTCP() > 0 != wantTCP {
				t.Errorf("%s, %d times: asked over TCP %d times", what, times, servers[0].askedByTCP())
			}
		}
	}
}

func TestFreshSocketAndIdentifier(t *testing.T) {
	r, _, servers := several(t, 1)
	var mu sync.Mutex
	ports, ids := make(map[string]bool), make(map[uint16]bool)
	servers[0].script("ok.test.", "A", func(w dns.ResponseWriter, q *dns.Msg) *dns.Msg {
		mu.Lock()
		defer mu.Unlock()
		ports[w.RemoteAddr().String()] = true // one question at a time
		ids[q.Id] = true
		return new(dns.Msg).SetReply(q)
	})
	for range 20 {
		r.expire()
		r.lookupA("ok.test.")
	}
	mu.Lock()
	defer mu.Unlock()
	if len(ports) < 15 || len(ids) < 15 {
		t.Errorf("20 questions from %d ports with %d identifiers", len(ports), len(ids))
	}
}

func TestDNSOverTLS(t *testing.T) {
	ca := issuer.New("test authority", nil)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{ca.Issue(time.Now().Add(time.Hour), "dns.example")}})
	if err != nil {
		t.Fatal(err)
	}
	n := &nameserver{answers: make(map[string]func(dns.ResponseWriter, *dns.Msg) *dns.Msg)}
	n.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.1")
	srv := &dns.Server{Listener: l, Handler: n}
	started := make(chan struct{})
	srv.NotifyStartedFunc = func() { close(started) }
	go srv.ActivateAndServe()
	<-started
	t.Cleanup(func() { srv.Shutdown() })

	addr := l.Addr().(*net.TCPAddr).AddrPort()
	for _, tt := range []struct {
		name string
		good bool
	}{{"dns.example", true}, {"other.example", false}} {
		u := newUpstreams([]policy.Upstream{{Addr: addr, TLSName: tt.name}}, sourcePorts{})
		u.servers[0].tls.RootCAs = ca.Pool()
		m, err := u.exchange(t.Context(), question{"ok.test", dns.TypeA})
		if tt.good != (err == nil) || tt.good && len(m.Answer) != 1 {
			t.Errorf("certificate for %s: %v, %v", tt.name, m, err)
		}
	}
}

func TestUpstreamString(t *testing.T) {
	a := netip.MustParseAddrPort("192.0.2.1:853")
	if got := (&server{Upstream: policy.Upstream{Addr: a, TLSName: "dns.example"}}).String(); got != "192.0.2.1:853#dns.example" {
		t.Error(got)
	}
	if got := (&server{Upstream: policy.Upstream{Addr: a}}).String(); got != "192.0.2.1:853" {
		t.Error(got)
	}
}

func TestFollow(t *testing.T) {
	chain := func(n int) []string {
		var out []string
		owner := "ok.test."
		for i := range n {
			next := string(rune('a'+i)) + ".example."
			out = append(out, owner+" 60 CNAME "+next)
			owner = next
		}
		return append(out, owner+" 60 A 192.0.2.1")
	}
	for _, tt := range []struct {
		what    string
		records []string
		addrs   int
		hops    int
	}{
		{"no records", nil, 0, 0},
		{"an address", chain(0), 1, 0},
		{"8 hops", chain(8), 1, 8},
		{"9 hops", chain(9), 0, 8},
		{"a loop", []string{"ok.test. 60 CNAME a.test.", "a.test. 60 CNAME ok.test."}, 0, 8},
		{"itself", []string{"ok.test. 60 CNAME ok.test."}, 0, 8},
		{"the same address twice", []string{"ok.test. 60 A 192.0.2.1", "ok.test. 60 A 192.0.2.1"}, 1, 0},
		{"another type", []string{"ok.test. 60 AAAA 2001:db8::1"}, 0, 0},
		{"another class", []string{"ok.test. 60 CH A 192.0.2.1"}, 0, 0},
		{"another owner", []string{"evil.test. 60 A 192.0.2.1"}, 0, 0},
		{"the chain's end missing", []string{"ok.test. 60 CNAME a.test."}, 0, 1},
		{"two aliases", []string{"ok.test. 60 CNAME a.test.", "ok.test. 60 CNAME b.test.", "b.test. 60 A 192.0.2.1"}, 0, 1},
	} {
		m := new(dns.Msg)
		for _, r := range tt.records {
			rr, err := dns.NewRR(r)
			if err != nil {
				if tt.what == "another class" {
					continue
				}
				t.Fatal(err)
			}
			m.Answer = append(m.Answer, rr)
		}
		f := follow(m, question{"ok.test", dns.TypeA}, func(string) bool { return true })
		if len(f.addrs) != tt.addrs || len(f.chain) != tt.hops || !f.exists {
			t.Errorf("%s: %+v", tt.what, f)
		}
	}
}

// FuzzUpstreamReply: no bytes from an upstream make the server panic, or give
// out or open an address that the policy does not admit.
func FuzzUpstreamReply(f *testing.F) {
	req := newRequest(question{"ok.test", dns.TypeA}, true)
	req.Id = 0x1234
	for _, records := range [][]string{
		{"ok.test. 60 A 192.0.2.1", "ok.test. 60 A 10.0.0.1", "evil.test. 1 A 192.0.2.2"},
		{"ok.test. 60 CNAME a.example.", "a.example. 0 CNAME ok.test.", "a.example. 2147483648 A 169.254.169.254"},
		{"ok.test. 60 TXT \"x\"", "ok.test. 60 HTTPS 1 . alpn=h2 ipv4hint=192.0.2.1"},
	} {
		m := new(dns.Msg)
		m.SetReply(req)
		for _, r := range records {
			rr, err := dns.NewRR(r)
			if err != nil {
				f.Fatal(err)
			}
			m.Answer = append(m.Answer, rr)
		}
		b, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-3])
	}
	f.Add(packet(flagQR|flagTC, [4]uint16{1}, okA))
	f.Add(packet(flagQR, [4]uint16{1, 65535}, okA+"\xc0\x0c\xc0\x0c"))
	r := newRig(f, "ok.test")
	var wrong []string // of the reply at hand; t belongs to it
	r.admit = func(_ context.Context, l lease) ([]netip.Addr, error) {
		for _, a := range l.addrs {
			if len(r.policy.Load().Admit("ok.test", a)) == 0 || a.Is4In6() {
				wrong = append(wrong, a.String())
			}
		}
		if l.ttl < time.Minute || l.ttl > 6*time.Minute || len(l.addrs) > 32 || l.name != "ok.test" {
			wrong = append(wrong, fmt.Sprint(l))
		}
		return l.addrs, nil
	}
	f.Fuzz(func(t *testing.T, pkt []byte) {
		in := bytes.Clone(pkt)
		m, err := parseReply(pkt, req)
		if err != nil {
			return
		}
		if binary.BigEndian.Uint16(in) != req.Id {
			t.Fatal("a reply with another identifier was taken")
		}
		who := &asker{client: client{count: &r.Server.uncounted}, question: question{"ok.test", dns.TypeA}}
		a := r.Server.admit(t.Context(), r.policy.Load(), r.policy.Load().Lookup("ok.test"), m, who)
		if len(wrong) > 0 {
			t.Errorf("leases of %q", wrong)
			wrong = nil
		}
		if a.ttl < 1 || a.ttl > 300 {
			t.Errorf("TTL %d", a.ttl)
		}
		r.forget()
	})
}
