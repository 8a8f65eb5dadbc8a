package resolver

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

const localTTL = 60 // seconds, of what is answered from here

// decide returns the answer to a question that no upstream is needed for, or
// nil if the name may be asked for. Nothing here leaves the process.
func (s *Server) decide(p *policy.Policy, q *query, c client, now time.Time) *answer {
	name := q.name
	if !q.clean {
		return s.deny(p, c, name, nil, "not a host name")
	}
	if name == policy.Canary {
		return s.deny(p, c, name, nil, "the browser is told to use this resolver")
	}
	if policy.OwnName(name) {
		return s.local(c, []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, q.qtype)
	}
	m := p.Lookup(name)
	if !m.Allowed && m.Rule != nil && !s.config.Monitor {
		return s.unallowed(p, name, c, now)
	}
	if addrs := p.Hosts(name); len(addrs) > 0 {
		return s.local(c, addrs, q.qtype)
	}
	if !m.Allowed && m.Rule == nil && meantByShort(p, name) {
		return s.refusal(c, p.Refusal(name, nil)) // and the next query gets its answer
	}
	if !m.Allowed && (!s.config.Monitor || policy.Reverse(name)) {
		return s.unallowed(p, name, c, now)
	}
	if m.Allowed && m.Name != name { // programs ask for that first
		return s.refusal(c, "the policy has "+m.Name+": ask for that")
	}
	switch q.qtype {
	case dns.TypeA, dns.TypeAAAA:
		return nil
	case dns.TypeHTTPS, dns.TypeSVCB: // asked for beside every A: not worth a line each
	default:
		s.config.Record(line(audit.Deny, name, m.Rule, "type "+dns.Type(q.qtype).String()+" is not answered, A and AAAA are").By(c.process(s.config.Find)))
	}
	c.count.Allowed.Add(1)
	return &answer{ttl: localTTL}
}

// local answers with those of addrs that the type asks for.
func (s *Server) local(c client, addrs []netip.Addr, qtype uint16) *answer {
	c.count.Allowed.Add(1)
	a := &answer{ttl: localTTL}
	for _, addr := range addrs {
		addr = addr.Unmap().WithZone("")
		if addr.Is4() && qtype == dns.TypeA || addr.Is6() && qtype == dns.TypeAAAA {
			a.addrs = append(a.addrs, addr)
		}
	}
	return a
}

// deny refuses name to c, and records it.
func (s *Server) deny(p *policy.Policy, c client, name string, rule *policy.Rule, reason string) *answer {
	name = cmp.Or(name, ".")
	s.recordDenied(c, name, rule, reason)
	return s.refusal(c, p.Refusal(name, rule))
}

func (s *Server) recordDenied(c client, name string, rule *policy.Rule, reason string) {
	if !c.again {
		s.config.Record(c.mark(line(audit.Deny, name, rule, reason)).By(c.process(s.config.Find)))
	}
}

func (s *Server) refusal(c client, text string) *answer {
	c.count.Denied.Add(1)
	return &answer{rcode: dns.RcodeNameError, ede: dns.ExtendedErrorCodeBlocked, text: text, ttl: seconds(denyTTL)}
}

// unallowed refuses a name that the policy does not allow. Programs ask for one name in several forms (policy.Resolv): one
// line is enough, about what they were told to reach, as far as that can be known.
func (s *Server) unallowed(p *policy.Policy, name string, c client, now time.Time) *answer {
	rule := p.Lookup(name).Rule
	if rule == nil && policy.Reverse(name) {
		return s.deny(p, c, name, nil, "reverse look-ups are not answered")
	}
	meant := slices.Collect(p.Resolv.Above(name))
	for _, form := range append(meant, name) {
		if s.searched.look(form, now, false) {
			return s.refusal(c, p.Refusal(name, rule))
		}
	}
	if len(meant) > 0 {
		name = meant[0]
		s.searched.look(name, now, true)
		rule = p.Lookup(name).Rule
	}
	why := "denied by a rule"
	if rule == nil {
		why = p.Unlisted(name)
	}
	return s.deny(p, c, name, rule, why)
}

// meantByShort says whether a full form stands for a name that is allowed, or in the hosts file.
func meantByShort(p *policy.Policy, full string) bool {
	for name := range p.Resolv.Above(full) {
		if p.Lookup(name).Allowed || len(p.Hosts(name)) > 0 {
			return true
		}
	}
	return false
}

// line is an event about name, by rule, which may be nil.
func line(v audit.Verdict, name string, rule *policy.Rule, reason string) audit.Event {
	e := audit.Event{Kind: audit.DNS, Verdict: v, Name: name, Reason: reason}
	if rule != nil {
		e.Rule = rule.Source.String()
	}
	return e
}

// seen remembers for a short time that something was recorded.
type seen struct {
	window time.Duration
	mu     sync.Mutex
	at     map[string]time.Time
}

// look reports whether key was marked within the window, and marks it if it is to.
func (s *seen) look(key string, now time.Time, mark bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.at[key]
	if ok = ok && now.Sub(t) < s.window; ok || !mark {
		return ok
	}
	if s.at == nil || len(s.at) >= 1024 {
		s.at = make(map[string]time.Time)
	}
	s.at[key] = now
	return false
}

func seconds(d time.Duration) uint32 { return uint32((d + time.Second - 1) / time.Second) }
