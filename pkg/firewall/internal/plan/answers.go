package plan

import (
	"net/netip"
	"slices"
)

// A DNS server of the guard's may be an address of this network namespace: the
// engine's, at 127.0.0.11, and those that a person has vouched for. Where nobody
// has its port any more, any process may bind it, and what that one answers would
// be the truth. So whoever sends as a server, or in reply to a question for one, is
// looked at, in both directions of a flow and also behind somebody's address
// translation.

// answersName is the chain that judges who answers for a server of this namespace.
const answersName = "answers"

// answers refuses whoever answers for a DNS server that is no address of this
// namespace, and has the others judged.
func (b *builder) answers() []Rule {
	var out []Rule
	here := false
	for _, u := range plainUpstreams(b.Upstreams) {
		mine := u.Addr() == EngineDNS() || slices.Contains(plainUpstreams(b.Here), u)
		here = here || mine || !b.AnyAgent
		for _, p := range []uint8{ProtoUDP, ProtoTCP} {
			from := []Match{MatchSrc{u.Addr()}, MatchProto{Proto: p}}
			if u.Addr() != EngineDNS() { // whose port is random
				from = append(from, MatchSrcPort{u.Port()})
			}
			// By a rule of somebody's that leads questions for a server outside to one in
			// here, a service mesh's for one. The guard's own answers to those that ask such
			// a server, and are led to it, are of such flows too.
			led := []Match{MatchProto{Proto: p}, MatchAnswer{u}}
			switch {
			case mine:
				out = append(out, To(Jump{answersName}, from...))
			case p == ProtoTCP: // the resets of our own refusals seem to come from there
				out = append(out, refuse(append(from, MatchReset{Not: true})...))
			default:
				out = append(out, refuse(from...))
			}
			if !b.AnyAgent {
				out = append(out, To(Jump{answersName}, led...))
			}
		}
	}
	if here {
		b.plan.Chains = append(b.plan.Chains, b.judge())
	}
	return out
}

// judge returns to the caller for what a process sends that is not the agent's. A
// socket that was closed has no owner any more, and may have been the agent's: what
// it still sends is dropped. A reset says nothing, and is the kernel's own where
// nobody listens.
func (b *builder) judge() Chain {
	c := Chain{Name: answersName}
	if !b.AnyAgent {
		// Whoever asks such a server is led to the guard, which answers from ports that
		// nobody else can have. What it leaves to send as it closes has no owner either.
		for _, l := range []netip.AddrPort{
			netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), b.DNSPort4), netip.AddrPortFrom(netip.IPv6Loopback(), b.DNSPort6),
		} {
			if l.Port() != 0 {
				c.Rules = append(c.Rules, To(Leave{}, MatchSrc{l.Addr()}, MatchProto{Proto: ProtoTCP}, MatchSrcPort{l.Port()}))
			}
		}
		c.Rules = append(c.Rules, refuse(MatchUID{UID: b.AgentUID}))
	}
	c.Rules = append(c.Rules,
		To(Leave{}, MatchHeld{}),
		To(Leave{}, MatchProto{Proto: ProtoTCP}, MatchReset{}),
		To(Drop{}))
	return c
}
