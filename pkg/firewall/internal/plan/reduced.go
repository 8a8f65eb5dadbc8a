package plan

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// A reduced plan is for gVisor, whose packet filter knows addresses, ports,
// interfaces, the flags of TCP and the uid and gid of a sending socket, and nothing else:
// no sets, so no leases; no state of a connection. Two rules follow from that.
//
//   - Nothing but the guard's TCP leaves. What the policy allows is redirected to
//     the guard, by port, and the guard asks the keeper's book before it connects
//     onward. The guard may go to no port that the policy doesn't name.
//   - A reply can't be told from a packet that nobody asked for. Over TCP it can't
//     open a connection either, which is what counts: segments that could are
//     refused in both directions, but for the ports that may be connected to. Over
//     UDP anything goes, so none comes from the link.

// reducedPlan computes a reduced plan. Both lists of boxes are as Config has them, deny with what no policy opens.
func reducedPlan(c Config, allow, deny []Box) (Plan, error) {
	for _, b := range allow {
		if b.Proto != unix.IPPROTO_TCP {
			return Plan{}, errors.New("allow: a reduced plan can let nothing but tcp through")
		}
	}
	for _, e := range c.Inbound {
		if e.Proto != unix.IPPROTO_TCP {
			return Plan{}, errors.New("inbound: a reduced plan can let nothing but tcp in")
		}
	}
	r := &reducer{Config: c, denied: disjoint(deny)}
	// What is redirected by its port already needs no rule of its own.
	r.allowed = slices.DeleteFunc(disjoint(allow), func(b Box) bool { return slices.Contains(c.Relayed, b.Port) })
	for _, l := range c.Local {
		if a := l.Addr().Unmap().WithZone(""); !a.IsLoopback() {
			r.own = append(r.own, netip.PrefixFrom(a, l.Bits()-(l.Addr().BitLen()-a.BitLen())))
		}
	}
	r.own = ordered(r.own, comparePrefixes)

	refuse, forward := Chain{Name: "refuse", Rules: []Rule{{[]Match{tcp}, hangUp}, {nil, noPort}}}, Chain{Name: "forward", Hook: "forward", Closed: true}
	p := Plan{DropGroup: c.DropGroup, Reduced: true, Guard: c.GuardUID, Chains: []Chain{refuse, r.arriving(), r.output(), r.input(), forward}}
	if !c.Sealed {
		p.Chains = append(slices.Insert(p.Chains, 1, r.guard()), r.redirect())
	}
	return p, nil
}

type reducer struct {
	Config
	allowed, denied []Box
	own             []netip.Prefix
}

func (r *reducer) output() Chain {
	c := Chain{Name: "output", Hook: "output", Closed: true}

	// What stays here. After a redirection the packet still shows the interface
	// that it would have left by, and so do the replies.
	c.add(accept, staying)
	for _, a := range r.own {
		c.add(accept, dst(single(a.Addr())))
	}
	if r.Sealed {
		c.refuse()
		return c
	}
	for _, socket := range [][]Match{ // of the guard's
		{dst(self4), udp, dport(r.DNSPort4)}, {dst(self4), tcp, dport(r.DNSPort4)}, {dst(self4), tcp, dport(r.GatePort4)},
		{dst(loopback6), udp, dport(r.DNSPort6)}, {dst(loopback6), tcp, dport(r.DNSPort6)}, {dst(loopback6), tcp, dport(r.GatePort6)},
	} {
		if socket[2] != dport(0) {
			c.add(accept, socket...)
		}
	}

	// Neighbour discovery, without which there is no IPv6. Types can't be told, so
	// it goes to the own networks only, and from those who live here not at all.
	for _, id := range ordered([]uint32{0, r.AgentUID, r.GuardUID}, cmp.Compare[uint32]) {
		c.refuse(of(IPv6), icmp6, uid(id))
	}
	for _, p := range r.neighbours() {
		c.add(accept, icmp6, dst(p))
	}

	c.add(jump("guard"), r.guardOwned()...)
	// Replies of what may be connected to.
	for _, e := range r.inbound() {
		c.refuse(tcp, sport(e.Port), opening)
		c.add(accept, tcp, sport(e.Port))
	}
	c.refuse()
	return c
}

// guard decides where the guard may go. What it may not gets no answer: a refusal would end its connections in silence
// when a policy shrinks, which closes ports first; so it ends them itself, and the other side may hear of it.
func (r *reducer) guard() Chain {
	c := Chain{Name: "guard"}
	c.add(accept, tcp, reset)
	for _, u := range plainUpstreams(r.Upstreams) { // before the blocks that no one may reach: clouds put theirs there
		c.add(accept, dst(single(u.Addr())), tcp, dport(u.Port()))
	}
	for _, b := range r.denied {
		c.add(drop, b.matches()...)
	}
	for _, port := range sorted(r.Relayed) {
		c.add(accept, tcp, dport(port))
	}
	for _, b := range r.allowed {
		c.add(accept, b.matches()...)
	}
	c.add(drop)
	return c
}

// arriving decides what may come in from the link. Only packets from there pass this hook: what was sent here, replies
// to redirected packets among it, goes straight to the next one, where it can't be told apart any more.
func (r *reducer) arriving() Chain {
	c := Chain{Name: "arriving", Hook: "prerouting"}
	r.inward(&c)
	c.add(drop)
	return c
}

// inward lets in what may come in.
func (r *reducer) inward(c *Chain) {
	if r.Sealed {
		return
	}
	// Neighbour discovery, and errors: path MTU discovery needs them. The agent has
	// no socket that could read any (privdrop.Spec.DenyPing).
	c.add(accept, of(IPv6), icmp6)
	c.add(accept, of(IPv4), icmp)
	for _, e := range r.inbound() {
		c.add(accept, tcp, dport(e.Port), opening)
	}
	c.add(drop, tcp, opening)
	c.add(accept, tcp)
}

func (r *reducer) input() Chain {
	c := Chain{Name: "input", Hook: "input", Closed: true}
	c.add(accept, arriving)
	c.add(drop, dst(loopback4))
	c.add(drop, dst(loopback6))
	r.inward(&c)
	if !r.Sealed {
		c.add(accept, udp, sport(53)) // the guard's answers to redirected questions: from the link there is no UDP
	}
	return c
}

// redirect sends port 53 of every address to the guard, and what the policy may allow. What is refused whatever the
// guard thinks, goes its way to be refused at once.
func (r *reducer) redirect() Chain {
	c := Chain{Name: "to-guard", Hook: "output", Nat: true, Priority: -105}
	c.add(leave, r.guardOwned()...)
	for _, f := range Families() {
		r.redirectDNS(&c, f)
	}
	c.add(leave, staying)
	for _, a := range r.own {
		c.add(leave, dst(single(a.Addr())))
	}
	for _, b := range r.denied {
		c.add(leave, b.matches()...)
	}
	for _, f := range Families() {
		gate := r.gate(f)
		if gate == 0 {
			continue
		}
		for _, port := range sorted(r.Relayed) {
			c.add(redirect(gate), of(f), tcp, dport(port))
		}
		for _, b := range ofFamily(r.allowed, f) {
			c.add(redirect(gate), b.matches()...)
		}
	}
	return c
}

func (b Box) matches() []Match {
	ms := []Match{dst(b.Prefix)}
	if b.Proto != 0 {
		ms = append(ms, proto(b.Proto))
	}
	if b.Port != 0 {
		ms = append(ms, dport(b.Port))
	}
	return ms
}

// neighbours are where answers of neighbour discovery go (RFC 4861, section
// 7.2.4): whoever is on the own links, and all nodes of them.
func (r *reducer) neighbours() []netip.Prefix {
	out := []netip.Prefix{netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff02::1/128")}
	for _, a := range r.own {
		if a.Addr().Is6() && !a.Addr().IsLinkLocalUnicast() && !a.IsSingleIP() {
			out = append(out, a.Masked())
		}
	}
	return slices.Compact(out)
}
