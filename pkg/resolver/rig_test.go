package resolver

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// nameserver is an upstream on loopback, over UDP and TCP, that answers by script.
type nameserver struct {
	addr netip.AddrPort

	mu      sync.Mutex
	answers map[string]func(w dns.ResponseWriter, q *dns.Msg) *dns.Msg // by "name. TYPE"; nil reply: silence
	log     []string                                                   // "name. TYPE" as received
	packets []*dns.Msg
	tcp     int
}

func newNameserver(t testing.TB) *nameserver {
	t.Helper()
	n := &nameserver{answers: make(map[string]func(dns.ResponseWriter, *dns.Msg) *dns.Msg)}
	l, pc := listenBoth(t)
	n.addr = l.Addr().(*net.TCPAddr).AddrPort()
	for _, srv := range []*dns.Server{{Listener: l, Handler: n}, {PacketConn: pc, Handler: n}} {
		started := make(chan struct{})
		srv.NotifyStartedFunc = func() { close(started) }
		go srv.ActivateAndServe()
		<-started
		t.Cleanup(func() { srv.Shutdown() })
	}
	return n
}

// listenBoth returns sockets of both kinds on one port.
func listenBoth(t testing.TB) (net.Listener, net.PacketConn) {
	t.Helper()
	for range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		pc, err := net.ListenPacket("udp", l.Addr().String())
		if err == nil {
			return l, pc
		}
		l.Close()
	}
	t.Fatal("no port is free for both UDP and TCP")
	return nil, nil
}

func (n *nameserver) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	key := q.Question[0].Name + " " + dns.Type(q.Question[0].Qtype).String()
	n.mu.Lock()
	n.log = append(n.log, key)
	n.packets = append(n.packets, q)
	if w.LocalAddr().Network() == "tcp" {
		n.tcp++
	}
	answer := n.answers[key]
	n.mu.Unlock()
	m := new(dns.Msg)
	m.SetReply(q)
	if answer != nil {
		m = answer(w, q)
	} else if !n.exists(q.Question[0].Name) {
		m.Rcode = dns.RcodeNameError
	}
	if m != nil {
		m.Compress = true
		if w.LocalAddr().Network() == "udp" {
			m.Truncate(1232)
		}
		w.WriteMsg(m)
	}
}

func (n *nameserver) exists(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key := range n.answers {
		if strings.HasPrefix(key, name+" ") {
			return true
		}
	}
	return false
}

// set has the server answer a question with records, in zone file format.
func (n *nameserver) set(t testing.TB, name, qtype string, records ...string) {
	t.Helper()
	var rrs []dns.RR
	for _, r := range records {
		rr, err := dns.NewRR(r)
		if err != nil {
			t.Fatal(err)
		}
		rrs = append(rrs, rr)
	}
	n.script(name, qtype, func(w dns.ResponseWriter, q *dns.Msg) *dns.Msg {
		m := new(dns.Msg)
		m.SetReply(q)
		m.Answer = rrs
		return m
	})
}

func (n *nameserver) script(name, qtype string, f func(w dns.ResponseWriter, q *dns.Msg) *dns.Msg) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answers[name+" "+qtype] = f
}

func (n *nameserver) asked() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.log...)
}

func (n *nameserver) received() []*dns.Msg {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]*dns.Msg(nil), n.packets...)
}

func (n *nameserver) askedByTCP() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.tcp
}

// lease is a call of Admit.
type lease struct {
	name  string
	addrs []netip.Addr
	ttl   time.Duration
}

// rig is a Server with an upstream and everything that it tells the outside.
type rig struct {
	*Server
	t      testing.TB
	up     *nameserver
	policy atomic.Pointer[policy.Policy]

	mu     sync.Mutex
	events []audit.Event
	leases []lease
	admit  func(context.Context, lease) ([]netip.Addr, error) // nil admits all
}

// newRig returns a rig with the lines of an allowlist, quick to give up.
func newRig(t testing.TB, lines ...string) *rig {
	t.Helper()
	return newRigWith(t, func(*Config) {}, policyOf(t, "", "", lines...))
}

func newRigWith(t testing.TB, change func(*Config), p *policy.Policy) *rig {
	t.Helper()
	r := &rig{t: t, up: newNameserver(t)}
	r.policy.Store(p)
	c := Config{
		Policy:    r.policy.Load,
		Upstreams: []policy.Upstream{{Addr: r.up.addr}},
		Admit: func(ctx context.Context, name string, addrs []netip.Addr, ttl time.Duration) ([]netip.Addr, error) {
			l := lease{name, addrs, ttl}
			r.mu.Lock()
			r.leases = append(r.leases, l)
			admit := r.admit
			r.mu.Unlock()
			if admit != nil {
				return admit(ctx, l)
			}
			return addrs, nil
		},
		Record: func(e audit.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, e)
		},
		Find: audit.Nobody, FindAllowed: audit.Nobody, Aside: func(string) bool { return false }, Log: slog.New(slog.DiscardHandler),
	}
	change(&c)
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	r.Server = s
	r.quick()
	t.Cleanup(func() { s.end(); s.work.Wait() })
	return r
}

// quick makes the upstreams' patience short.
func (r *rig) quick() *upstreams {
	u := newUpstreams(r.config.Upstreams, sourcePorts{})
	u.first = 150 * time.Millisecond
	u.health = r.config.Health
	r.exchange = func(ctx context.Context, q question) (*dns.Msg, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return u.exchange(ctx, q)
	}
	return u
}

// policyOf parses an allowlist, a policy.yaml and a hosts file.
func policyOf(t testing.TB, yaml, hosts string, lines ...string) *policy.Policy {
	t.Helper()
	b := &policy.Bundle{Hosts: []byte(hosts), Resolv: policy.Resolv{Search: []string{"corp.test", "svc.cluster.local"}}, Files: []policy.File{
		{Name: "allowlist.txt", Data: []byte(strings.Join(lines, "\n") + "\n")}}}
	if yaml != "" {
		b.Files = append(b.Files, policy.File{Name: "policy.yaml", Data: []byte(yaml)})
	}
	p, err := policy.Parse(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// raw has pkt answered as over TCP, or with the sizes of UDP; nil is no reply.
func (r *rig) raw(pkt []byte) []byte {
	answers := make(chan []byte, 1)
	reply, later := r.handle(pkt, nil, client{answers: answers})
	if later {
		reply = <-answers
	}
	return reply
}

// send has a message answered.
func (r *rig) send(q *dns.Msg) *dns.Msg {
	r.t.Helper()
	pkt, err := q.Pack()
	if err != nil {
		r.t.Fatal(err)
	}
	reply := r.raw(pkt)
	if reply == nil {
		r.t.Fatalf("no reply to %v", q.Question)
	}
	m := new(dns.Msg)
	if err := m.Unpack(reply); err != nil {
		r.t.Fatalf("the reply can't be read: %v", err)
	}
	if m.Id != q.Id || !m.Response {
		r.t.Fatalf("not a reply to the query: %v", m)
	}
	return m
}

// ask asks for a name, with EDNS.
func (r *rig) ask(name string, qtype uint16) *dns.Msg {
	r.t.Helper()
	return r.send(asks(name, qtype))
}

// lookupA returns the code and the addresses of the answer to name A.
func (r *rig) lookupA(name string) (rcode int, addrs []string) {
	r.t.Helper()
	m := r.ask(name, dns.TypeA)
	return m.Rcode, addresses(m)
}

func asks(name string, qtype uint16) *dns.Msg {
	q := new(dns.Msg)
	q.SetQuestion(name, qtype)
	q.SetEdns0(1232, false)
	return q
}

func addresses(m *dns.Msg) []string {
	var out []string
	for _, rr := range m.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			out = append(out, rr.A.String())
		case *dns.AAAA:
			out = append(out, rr.AAAA.String())
		default:
			out = append(out, rr.String())
		}
	}
	return out
}

// ede returns the Extended DNS Error of a reply.
func ede(m *dns.Msg) (code uint16, text string) {
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*dns.EDNS0_EDE); ok {
				return e.InfoCode, e.ExtraText
			}
		}
	}
	return 0, ""
}

// recorded returns the events of a verdict.
func (r *rig) recorded(v audit.Verdict) []audit.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []audit.Event
	for _, e := range r.events {
		if e.Verdict == v {
			out = append(out, e)
		}
	}
	return out
}

func (r *rig) leased() []lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]lease(nil), r.leases...)
}

// expire makes every cached answer old.
func (r *rig) expire() {
	r.cache.mu.Lock()
	defer r.cache.mu.Unlock()
	clear(r.cache.m)
}

// uncache makes one old.
func (r *rig) uncache(q question) {
	r.cache.mu.Lock()
	defer r.cache.mu.Unlock()
	delete(r.cache.m, q)
}

// forget drops what was recorded.
func (r *rig) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.leases = nil, nil
}
