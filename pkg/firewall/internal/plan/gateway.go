package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// A gateway keeps agents that are in other network namespaces. What they send comes in by one interface, and is judged
// before anything else looks at it; nothing that they do to their own namespace changes that. They reach where the
// gateway answers them, and by the forward path, if it is open at all, what the sets have. Each packet is judged there
// as in the output path: none passes for being part of a flow.
//
// The gateway begins nothing towards the agents, lets nobody begin anything, and passes nothing on from one to another.

// Inside is the network of a gateway's agents. The zero value is none.
type Inside struct {
	Link     uint32         // the index of its interface
	Networks []netip.Prefix // what the agents send from, of either family

	// DNS, Gate and Broker are where the gateway answers the agents: addresses of its own within Networks, at most one of
	// each family.
	DNS, Gate, Broker []netip.AddrPort

	// Own are TCP ports of the gateway's addresses that lead to Gate, where names are answered with these addresses.
	Own []uint16

	// Onward opens the forward path: to what is allowed or leased, by any other interface than Link.
	Onward bool

	// Shared says that others than the agents are behind Link as well, and that the way out may be by it. Nothing is
	// forwarded then, and who is an agent is told by the address alone.
	Shared bool
}

func (c Config) checkInside() error {
	in := c.Inside
	switch {
	case in.Link == 0 && len(in.Networks)+len(in.DNS)+len(in.Gate)+len(in.Broker)+len(in.Own) == 0 && !in.Onward && !in.Shared:
		return nil
	case in.Link == 0:
		return errors.New("a gateway needs the interface of its agents")
	case len(in.Networks) == 0:
		return errors.New("a gateway needs the network of its agents")
	case in.Onward && in.Shared:
		return errors.New("a gateway forwards nothing between networks behind one interface")
	case c.Reduced:
		return errors.New("a reduced plan forwards nothing, so it can't be a gateway's")
	case len(c.Inbound) > 0:
		return errors.New("a gateway lets nothing in to its agents")
	}
	for _, l := range slices.Concat(in.DNS, in.Gate, in.Broker) {
		if l.Port() == 0 || !slices.ContainsFunc(in.Networks, func(p netip.Prefix) bool { return p.Contains(l.Addr()) }) {
			return fmt.Errorf("a gateway can't answer at %v, which is not in its agents' network", l)
		}
	}
	return nil
}

func (c Config) isGateway() bool { return c.Inside.Link != 0 }

// inside matches what comes from the agents' interface.
func (c Config) inside() Match { return iif(c.Inside.Link) }

// addGateway adds the chains of a gateway but that of the forward path, which is there always.
func (b *builder) addGateway() {
	if !b.isGateway() {
		return
	}
	b.plan.Chains = append(b.plan.Chains, b.sources(), b.arrivals(), b.visitors(), b.toAgents(), b.led(), b.lead())
	if b.Inside.Onward {
		b.plan.Chains = append(b.plan.Chains, b.outgoing(), b.incoming(), b.masquerade())
	}
}

// arrivals drops what is not from where it comes in, before it can become a flow.
func (b *builder) arrivals() Chain {
	c := Chain{Name: "arrivals", Hook: "prerouting", Priority: raw}
	c.add(leave, arriving)
	for _, p := range b.Inside.Networks {
		c.add(drop, b.inside().not(), from(p))
	}
	if !b.Inside.Shared {
		c.add(jump("sources"), b.inside())
		return c
	}
	b.byAgents(&c, "sources")
	return c
}

// byAgents has what agents send decided by a chain.
func (b *builder) byAgents(c *Chain, chain string) {
	for _, p := range b.Inside.Networks {
		c.add(jump(chain), b.inside(), from(p))
	}
}

// sources returns to the caller for what an agent may send. One that is hostile sends whatever it likes: as the gateway,
// as somebody outside, or with a request to send it on (RFC 791, 3.1; RFC 8754).
func (b *builder) sources() Chain {
	c := Chain{Name: "sources"}
	c.add(drop, ours)
	c.add(drop, plainHead.not())
	c.add(drop, of(IPv6), routed)
	for _, p := range b.Inside.Networks {
		c.add(leave, from(p))
	}
	for _, typ := range []uint8{135, 136} { // by which neighbours find each other, RFC 4861
		c.add(leave, icmp6, icmpType(typ), neighbourly, from(linkLocal))
	}
	c.add(leave, icmp6, icmpType(135), neighbourly, from(single(netip.IPv6Unspecified())))
	c.add(drop)
	return c
}

// lead leads the agents' questions to the guard, and their connections to names that are looked into.
func (b *builder) lead() Chain {
	c := Chain{Name: "lead", Hook: "prerouting", Nat: true, Priority: -105}
	b.byAgents(&c, "led")
	return c
}

func (b *builder) led() Chain {
	c := Chain{Name: "led"}
	for _, l := range b.Inside.DNS {
		for _, p := range ported() {
			c.add(dnat(l), of(FamilyOf(l.Addr())), p, dport(53))
		}
	}
	for _, l := range b.Inside.Broker {
		c.add(leave, dst(single(l.Addr())), tcp, dport(l.Port()))
	}
	for _, l := range b.Inside.Gate {
		f := FamilyOf(l.Addr())
		for _, port := range sorted(b.Inside.Own) {
			c.add(dnat(l), dst(single(l.Addr())), tcp, dport(port))
		}
		for _, s := range b.allowed[f] {
			c.add(leave, of(f), inSet(s))
		}
		for _, h := range redirectedTo() {
			c.add(dnat(l), of(f), tcp, inSet(f.Leases(h).Name))
		}
	}
	return c
}

// visitors decides what of the gateway its agents reach.
func (b *builder) visitors() Chain {
	c := Chain{Name: "visitors"}
	for _, typ := range []uint8{135, 136} { // but never a router's word: the gateway's way out is not theirs to say
		c.add(accept, icmp6, icmpType(typ), neighbourly)
	}
	for _, l := range b.Inside.DNS {
		for _, p := range ported() {
			c.add(accept, original, redirected, dst(single(l.Addr())), p, dport(l.Port()))
		}
	}
	for _, l := range b.Inside.Gate {
		c.add(accept, original, redirected, dst(single(l.Addr())), tcp, dport(l.Port()))
	}
	for _, l := range b.Inside.Broker {
		c.add(accept, original, dst(single(l.Addr())), tcp, dport(l.Port()))
	}
	c.refuse()
	return c
}

// toAgents decides what of this namespace is sent to the agents: answers, and the kernel's refusals, which have no owner.
func (b *builder) toAgents() Chain {
	c := Chain{Name: "to-agents"}
	for _, l := range b.Inside.DNS {
		for _, p := range ported() {
			c.add(accept, reply, established, src(l.Addr()), p, sport(l.Port()))
		}
	}
	for _, l := range slices.Concat(b.Inside.Gate, b.Inside.Broker) {
		c.add(accept, reply, established, src(l.Addr()), tcp, sport(l.Port()))
	}
	c.refuse(owned)
	c.add(accept, tcp, reset)
	for _, e := range unreachable() {
		c.add(accept, append([]Match{related}, e...)...)
	}
	c.add(drop)
	return c
}

// towardsAgents has decided what goes to the agents. What this namespace sends to itself is none of it.
func (b *builder) towardsAgents(c *Chain) {
	if !b.isGateway() {
		return
	}
	for _, p := range b.Inside.Networks {
		c.add(jump("to-agents"), staying.not(), dst(p))
	}
}

// forward decides what is passed on: nothing, but by a gateway.
func (b *builder) forward() Chain {
	c := Chain{Name: "forward", Hook: "forward", Closed: true}
	if !b.Inside.Onward {
		if b.isGateway() {
			c.refuse(b.inside()) // and says so, where the kernel would have forwarded
		}
		return c
	}
	c.add(drop, invalid)
	c.add(jump("outgoing"), b.inside(), oif(b.Inside.Link).not())
	for _, p := range b.Inside.Networks {
		c.add(jump("incoming"), b.inside().not(), oif(b.Inside.Link), dst(p))
	}
	c.refuse(b.inside()) // from one agent to another
	return c
}

// outgoing decides what agents send by the forward path, like output and permitted.
func (b *builder) outgoing() Chain {
	c := Chain{Name: "outgoing"}
	for _, f := range Families() {
		c.refuse(of(f), inSet(b.deny[f]))
	}
	for _, p := range ported() {
		c.refuse(p, dport(53))
	}
	b.era(&c, jump("refuse"))
	for _, f := range Families() {
		for _, s := range b.allowed[f] {
			c.add(accept, of(f), inSet(s))
		}
		c.add(accept, of(f), established, inSet(f.Kept(Agent).Name))
		for _, h := range redirectedTo() {
			c.refuse(of(f), inSet(f.Leases(h).Name))
		}
		c.add(accept, of(f), inSet(f.Leases(Agent).Name))
	}
	if b.Observe {
		c.add(jump("observe"), tcp)
		c.add(jump("observe"), udp)
	}
	c.refuse()
	return c
}

// incoming decides what is answered to agents, like repliesIn.
func (b *builder) incoming() Chain {
	c := Chain{Name: "incoming"}
	c.add(drop, original)
	b.era(&c, drop)
	for _, e := range unreachable() {
		c.add(accept, append([]Match{related}, e...)...)
	}
	for _, f := range Families() {
		b.answeredFrom(&c, f, Agent)
	}
	if b.Observe {
		c.add(accept, established)
	}
	c.add(drop)
	return c
}

// masquerade has what is passed on seem the gateway's own. Nothing outside knows a way to the agents.
func (b *builder) masquerade() Chain {
	c := Chain{Name: "disguise", Hook: "postrouting", Nat: true, Priority: 100}
	for _, p := range b.Inside.Networks {
		c.add(masquerade, from(p), oif(b.Inside.Link).not(), staying.not())
	}
	return c
}
