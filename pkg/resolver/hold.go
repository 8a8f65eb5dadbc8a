package resolver

import (
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// hold keeps a question for a name that nothing in the policy matches, until whoever decides about it has done so or
// takes too long, and then answers it by the policy as it is by then. Over TCP it would hold what is asked behind it on
// that connection.
func (s *Server) hold(p *policy.Policy, q *query, c client) bool {
	if s.config.Hold == nil || !q.clean || c.answers != nil || !s.undecided(p, q.name) || s.config.Aside(q.name) {
		return false
	}
	if q.qtype != dns.TypeA && q.qtype != dns.TypeAAAA && q.qtype != dns.TypeHTTPS {
		return false
	}
	over := s.config.Hold(q.name, func() *audit.Process { return c.process(s.config.Find) })
	if over == nil {
		return false
	}
	s.work.Go(func() {
		select {
		case <-over:
			s.resume(q, c)
		case <-s.life.Done():
		}
	})
	return true
}

// undecided says whether a name is refused for no other reason than that nobody has thought of it.
func (s *Server) undecided(p *policy.Policy, name string) bool {
	m := p.Lookup(name)
	return !m.Allowed && m.Rule == nil && len(p.Hosts(name)) == 0 && name != policy.Canary && !policy.OwnName(name) &&
		!policy.Reverse(name) && len(slices.Collect(p.Resolv.Above(name))) == 0
}

// resume answers a question that was held.
func (s *Server) resume(q *query, c client) {
	send := func(a *answer) { c.send(c.reply(nil, q, a, a.ttl, 0)) }
	a := s.decide(s.config.Policy(), q, c, time.Now())
	if a == nil {
		a, _ = s.ask(&asker{client: c, question: q.question, find: s.config.FindAllowed}, send)
	}
	if a != nil {
		send(a)
	}
}
