package resolver

import (
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// In monitor mode every name is asked for. What the policy does not allow is
// answered without a lease, since the firewall lets it out by itself, and each
// address is recorded with both verdicts, so that what is seen of it later can
// be told by its name.

// maxLet is how many addresses of one answer are let through.
const maxLet = 16

// observe answers for a name that the policy does not allow.
func (s *Server) observe(p *policy.Policy, match policy.Match, name string, qtype uint16, m *dns.Msg, first *asker) *answer {
	why := "not in the allowlist"
	if match.Rule != nil {
		why = "denied by a rule"
	}
	f := follow(m, name, qtype, func(string) bool { return true })
	a := &answer{ttl: seconds(max(time.Second, min(f.ttl, time.Duration(p.Settings().DNS.MaxTTL))))}
	if a.addrs = s.let(name, match.Rule, why, f.addrs, first); len(a.addrs) > 0 {
		return a
	}
	if !f.exists {
		a.rcode = rcodeNXDomain
		why += "; there is no such name"
	}
	first.say(audit.Event{Kind: audit.DNS, Verdict: audit.Allow, Enforce: audit.Deny, Name: name, Rule: cite(match.Rule),
		Reason: "monitor: " + why})
	return a
}

// let records and returns those of addrs that monitor mode lets through.
func (s *Server) let(name string, rule *policy.Rule, why string, addrs []netip.Addr, who *asker) []netip.Addr {
	var out []netip.Addr
	for _, a := range addrs {
		if !letThrough(a) || len(out) == maxLet {
			continue
		}
		out = append(out, a)
		s.config.Record(who.mark(audit.Event{Kind: audit.DNS, Verdict: audit.Allow, Enforce: audit.Deny, Name: name, IP: a.String(),
			Rule: cite(rule), Reason: "monitor: " + why}).By(who.by))
	}
	return out
}

// letThrough says whether an address may be an answer at all: loopback, metadata
// and the like never are, nor are addresses inside of others.
func letThrough(a netip.Addr) bool { return !a.Is4In6() && policy.Classify(a) <= policy.Private }

// unadmitted are those of addrs that p does not admit for name.
func unadmitted(p *policy.Policy, name string, addrs []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return len(p.Admit(name, a)) > 0 })
}
