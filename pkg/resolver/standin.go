package resolver

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

// standInTTL is that of an address which stands in for a name. It never changes, but the policy may.
const standInTTL = 5 * time.Minute

// find asks upstream, unless the policy leaves the name to its proxy. Then no server hears of it, and the answer is the
// address that stands in for it. A short name is looked for below the search domains. Where no answer comes, nothing else is
// asked: a name further down the list is another server, which programs would take for the one that they mean.
func (s *Server) find(ctx context.Context, q question) (*dns.Msg, error) {
	p, name := s.config.Policy(), q.name
	if a, ok := p.StandIn(name); ok {
		return standIn(q, a), nil
	}
	if m := p.Lookup(name); m.Allowed {
		name = m.Name // what the addresses are leased to
	}
	for names := p.Asked(name); ; names = names[1:] {
		m, err := s.query(ctx, q, names[0])
		if err != nil || len(names) == 1 || m.Rcode != dns.RcodeNameError {
			return alias(m, q, names[0]), err
		}
	}
}

// alias makes the reply about another name, which is meant by the one that is asked for, one about that.
func alias(m *dns.Msg, q question, meant string) *dns.Msg {
	if m == nil || meant == q.name {
		return m
	}
	to := &dns.CNAME{Hdr: dns.RR_Header{Name: dns.Fqdn(q.name), Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: math.MaxInt32}, Target: dns.Fqdn(meant)}
	out := *m
	out.Answer = append([]dns.RR{to}, m.Answer...)
	return &out
}

// query asks the servers q, about a name that is meant by its own.
func (s *Server) query(ctx context.Context, q question, meant string) (*dns.Msg, error) {
	s.stats.Asked.Add(1)
	begun := time.Now()
	defer func() { s.stats.AskedNanos.Add(uint64(time.Since(begun))) }()
	asked := s.upstreams.Load().servers
	m, err := s.exchange(ctx, question{meant, q.qtype})
	if _, refused := errors.AsType[rcodeError](err); s.life.Err() == nil && s.config.Health.ended(asked, q, err == nil || refused, begun, time.Now()) {
		s.work.Go(func() { s.askAgain(q) })
	}
	return m, err
}

// standIn is the answer of a server that has a as the one address of a name.
func standIn(q question, a netip.Addr) *dns.Msg {
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(q.name), q.qtype)
	m.Response = true
	if q.qtype == dns.TypeA {
		m.Answer = []dns.RR{&dns.A{
			Hdr: dns.RR_Header{Name: dns.Fqdn(q.name), Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: seconds(standInTTL)},
			A:   a.AsSlice(),
		}}
	}
	return m
}
