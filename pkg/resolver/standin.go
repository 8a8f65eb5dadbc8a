package resolver

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

// standInTTL is that of an address which stands in for a name. It never changes, but the policy may.
const standInTTL = 5 * time.Minute

// find asks upstream, unless the policy leaves the name to its proxy. Then no server hears of it, and the answer is the
// address that stands in for it.
func (s *Server) find(ctx context.Context, q question) (*dns.Msg, error) {
	if a, ok := s.config.Policy().StandIn(q.name); ok {
		return standIn(q, a), nil
	}
	s.stats.Asked.Add(1)
	begun := time.Now()
	defer func() { s.stats.AskedNanos.Add(uint64(time.Since(begun))) }()
	asked := s.upstreams.Load().servers
	m, err := s.exchange(ctx, q)
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
