package resolver

import (
	"cmp"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// canary is the name that Firefox asks for to find out whether it may send its DNS elsewhere. NXDOMAIN means no.
const canary = "use-application-dns.net"

const localTTL = 60 // seconds, of what is answered from here

// decide returns the answer to a question that no upstream is needed for, or
// nil if the name may be asked for. Nothing here leaves the process.
func (s *Server) decide(p *policy.Policy, name string, q *query, c client, now time.Time) *answer {
	if !q.clean {
		return s.deny(p, c, name, nil, "not a host name")
	}
	if name == canary {
		return s.deny(p, c, name, nil, "the browser is told to use this resolver")
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return s.local(c, []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, q.qtype)
	}
	m := p.Lookup(name)
	if !m.Allowed && m.Rule != nil && !s.config.Monitor {
		return s.deny(p, c, name, m.Rule, "denied by a rule")
	}
	if addrs := p.Hosts(name); len(addrs) > 0 {
		return s.local(c, addrs, q.qtype)
	}
	if !m.Allowed && (!s.config.Monitor || reverse(name)) {
		return s.unlisted(p, name, c, now)
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

// unlisted refuses a name that nothing in the policy matches. Of a name with a search
// domain behind it, clients ask for that without as well: one line is enough.
func (s *Server) unlisted(p *policy.Policy, name string, c client, now time.Time) *answer {
	if reverse(name) {
		return s.deny(p, c, name, nil, "reverse look-ups are not answered")
	}
	base := name
	for _, domain := range p.Resolv.Search {
		if b, ok := strings.CutSuffix(name, "."+domain); ok && b != "" {
			base = b
			break
		}
	}
	if base == name {
		if s.searched.look(name, now, false) {
			return s.refusal(c, p.Refusal(name, nil))
		}
		return s.deny(p, c, name, nil, p.Unlisted(name))
	}
	m := p.Lookup(base)
	if m.Allowed || len(p.Hosts(base)) > 0 {
		return s.refusal(c, p.Refusal(name, nil)) // and the next query gets its answer
	}
	if !s.searched.look(base, now, true) {
		s.recordDenied(c, base, m.Rule, p.Unlisted(base))
	}
	return s.refusal(c, p.Refusal(base, m.Rule))
}

func reverse(name string) bool {
	return strings.HasSuffix(name, ".in-addr.arpa") || strings.HasSuffix(name, ".ip6.arpa")
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
