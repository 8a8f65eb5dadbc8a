package guard

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/peers"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/firewall/drops"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/resolver"
)

func parsed(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "policy.yaml", Data: []byte(text)}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// nameserver answers each question for an IPv4 address with 45.30.0.1, and counts.
func nameserver(t *testing.T) (netip.AddrPort, *atomic.Int32) {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := new(atomic.Int32)
	s := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		asked.Add(1)
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(45, 30, 0, 1)}}
		}
		_ = w.WriteMsg(m)
	})}
	go s.ActivateAndServe()
	t.Cleanup(func() { pc.Close() })
	return pc.LocalAddr().(*net.UDPAddr).AddrPort(), asked
}

// TestRoutes: the guard resolves hosts of routes for the keeper, and leases them to the broker; and nothing else.
func TestRoutes(t *testing.T) {
	ours, theirs, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := wire.OpenPair(theirs)
	if err != nil {
		t.Fatal(err)
	}
	keeper := wire.Open(ours, wire.MaxText)
	defer keeper.Close()
	g := &guard{channel: wire.Open(conn, wire.MaxText), log: slog.New(slog.DiscardHandler)}
	g.asks = peers.NewAsks(g.channel)
	at, asked := nameserver(t)
	events := make(chan audit.Event, 100)
	ups := []policy.Upstream{{Addr: at}}
	g.resolveRoutes(resolver.Config{Record: func(e audit.Event) { events <- e }, Monitor: true, Log: g.log})
	adopt := func(text string) {
		t.Helper()
		p := parsed(t, text)
		if err := g.routes.adopt(p, ups); err != nil {
			t.Fatal(err)
		}
		g.policy.Store(p)
	}
	adopt("domains: [a.example.com:443]")
	if g.routes.server.Load() != nil {
		t.Error("there is a resolver for no route")
	}
	go func() { _ = g.serveChannel(t.Context()) }()

	var id uint32
	// resolve asks as the keeper does, and admits what is asked for meanwhile.
	resolve := func(name string) (reply wire.Message, leased []wire.Message) {
		t.Helper()
		id++
		if err := keeper.Send(wire.Message{Op: wire.OpResolve, ID: id, Name: name}, nil); err != nil {
			t.Fatal(err)
		}
		for {
			m, _, err := keeper.Receive()
			switch {
			case err != nil:
				t.Fatal(err)
			case m.Op == wire.OpResolve && m.ID == id:
				return m, leased
			case m.Op == wire.OpLease:
				leased = append(leased, m)
				err = keeper.Send(wire.Message{Op: wire.OpLease, ID: m.ID, Addrs: m.Addrs}, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if m, leased := resolve("api.anthropic.com"); !m.Err || len(leased) > 0 {
		t.Errorf("without a route: %+v, leased %v", m, leased)
	}
	adopt("domains: [a.example.com:443]\nbroker: {anthropic: {credential: 'env:KEY'}}")
	for _, name := range []string{"a.example.com", "evil.example", "x.api.anthropic.com", ""} {
		if m, leased := resolve(name); !m.Err || m.Text == "" || len(leased) > 0 {
			t.Errorf("%q: %+v, leased %v", name, m, leased)
		}
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the server was asked %d times for what is no route's", n)
	}
	m, leased := resolve("api.anthropic.com")
	if want := netip.MustParseAddr("45.30.0.1"); m.Err || !slices.Equal(m.Addrs, []netip.Addr{want}) || m.TTL <= 0 || m.TTL > time.Minute {
		t.Errorf("resolved: %+v", m)
	}
	if len(leased) != 1 || leased[0].Flag != wire.ForBroker || leased[0].Name != "api.anthropic.com" || leased[0].TTL <= m.TTL {
		t.Errorf("leased: %+v", leased)
	}
	if m, leased := resolve("api.anthropic.com"); m.Err || len(leased) > 0 {
		t.Errorf("again: %+v, leased %v: not from the cache", m, leased)
	}
	adopt("domains: [a.example.com:443]")
	if m, leased := resolve("api.anthropic.com"); !m.Err || len(leased) > 0 || !strings.Contains(m.Text, "not in the allowlist") {
		t.Errorf("after the route: %+v, leased %v", m, leased)
	}
	for len(events) > 0 {
		if e := <-events; e.Asker != audit.ByBroker {
			t.Errorf("told as somebody else's: %+v", e)
		}
	}
}

// TestDropEvent: what is refused to the broker is not taken for the agent's.
func TestDropEvent(t *testing.T) {
	d := drops.Drop{Proto: 6, Dst: netip.MustParseAddrPort("45.30.0.9:443"), UID: 64902}
	for _, tt := range []struct {
		prefix string
		uid    int64
		broker uint32
		want   audit.Asker
	}{
		{"agent-init", 64902, 64902, audit.ByBroker}, {"agent-init", 1000, 64902, audit.Agent}, {"agent-init", 64902, 0, audit.Agent},
		{"agent-init", 0, 0, audit.Agent}, {"agent-init", -1, 64902, audit.Agent}, {drops.InboundPrefix, -1, 64902, audit.ByOutside},
	} {
		d.Prefix, d.UID = tt.prefix, tt.uid
		if e := dropEvent(d, tt.broker); e.Asker != tt.want {
			t.Errorf("%+v: %+v", tt, e)
		}
	}
}
