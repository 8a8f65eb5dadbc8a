package plan

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
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

// reducedPlan computes a reduced plan. Both lists of boxes are as Config has them,
// deny with what no policy opens.
func reducedPlan(c Config, allow, deny []Box) (Plan, error) {
	for _, b := range allow {
		if b.Proto != ProtoTCP {
			return Plan{}, errors.New("allow: a reduced plan can let nothing but tcp through")
		}
	}
	for _, e := range c.Inbound {
		if e.Proto != ProtoTCP {
			return Plan{}, errors.New("inbound: a reduced plan can let nothing but tcp in")
		}
	}
	r := &reducer{Config: c}
	for _, f := range Families() {
		r.denied = append(r.denied, disjoint(ofFamily(deny, f))...)
		r.allowed = append(r.allowed, disjoint(ofFamily(allow, f))...)
	}
	// What is redirected by its port already needs no rule of its own.
	r.allowed = slices.DeleteFunc(r.allowed, func(b Box) bool { return slices.Contains(c.Gated, b.Port) })
	for _, l := range c.Local {
		if a := l.Addr().Unmap().WithZone(""); !a.IsLoopback() {
			r.own = append(r.own, netip.PrefixFrom(a, l.Bits()-(l.Addr().BitLen()-a.BitLen())))
		}
	}
	slices.SortFunc(r.own, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	r.own = slices.Compact(r.own)

	p := Plan{DropGroup: c.DropGroup, Reduced: true, Guard: c.GuardUID}
	p.Chains = append(p.Chains, Chain{Name: "refuse", Rules: []Rule{To(Reset{}, MatchProto{Proto: ProtoTCP}), To(NoPort{})}})
	if !c.Sealed {
		p.Chains = append(p.Chains, r.guard())
	}
	p.Chains = append(p.Chains, r.arriving(), r.output(), r.input(), Chain{Name: "forward", Hook: "forward", Closed: true})
	if !c.Sealed {
		p.Chains = append(p.Chains, r.redirect())
	}
	return p, nil
}

// reducer collects a reduced plan.
type reducer struct {
	Config
	allowed, denied []Box
	own             []netip.Prefix
}

func (r *reducer) output() Chain {
	c := Chain{Name: "output", Hook: "output", Closed: true}
	add := func(rs ...Rule) { c.Rules = append(c.Rules, rs...) }

	// What stays here. After a redirection the packet still shows the interface
	// that it would have left by, and so do the replies.
	add(To(Accept{}, MatchOut{}))
	for _, a := range r.own {
		add(To(Accept{}, MatchDst{Single(a.Addr())}))
	}
	if r.Sealed {
		add(refuse())
		return c
	}
	for _, l := range r.listeners() {
		add(To(Accept{}, MatchDst{l.addr}, MatchProto{Proto: l.proto}, MatchPort{l.port}))
	}

	// Neighbour discovery, without which there is no IPv6. Types can't be told, so
	// it goes to the own networks only, and from those who live here not at all.
	icmp6 := MatchProto{Proto: ProtoICMPv6}
	for _, uid := range r.uids() {
		add(refuse(MatchFamily{IPv6}, icmp6, MatchUID{UID: uid}))
	}
	for _, p := range r.neighbours() {
		add(To(Accept{}, icmp6, MatchDst{p}))
	}

	add(To(Jump{"guard"}, r.guardOwned()...))
	// Replies of what may be connected to.
	tcp := MatchProto{Proto: ProtoTCP}
	for _, port := range r.inbound() {
		add(refuse(tcp, MatchSrcPort{port}, MatchOpening{}), To(Accept{}, tcp, MatchSrcPort{port}))
	}
	add(refuse())
	return c
}

// guard decides where the guard may go. What it may not gets no answer: a refusal
// would end its connections in silence when a policy shrinks, which closes ports
// first; so it ends them itself, and the other side may hear of it.
func (r *reducer) guard() Chain {
	c := Chain{Name: "guard"}
	add := func(rs ...Rule) { c.Rules = append(c.Rules, rs...) }
	tcp := MatchProto{Proto: ProtoTCP}
	add(To(Accept{}, tcp, MatchReset{}))
	for _, u := range plainUpstreams(r.Upstreams) { // before the blocks that no one may reach: clouds put theirs there
		add(To(Accept{}, MatchDst{Single(u.Addr())}, tcp, MatchPort{u.Port()}))
	}
	for _, b := range r.denied {
		add(To(Drop{}, b.matches()...))
	}
	for _, port := range sorted(r.Gated) {
		add(To(Accept{}, tcp, MatchPort{port}))
	}
	for _, b := range r.allowed {
		add(To(Accept{}, b.matches()...))
	}
	add(To(Drop{}))
	return c
}

// arriving decides what may come in from the link. Only packets from there pass
// this hook: what was sent here, replies to redirected packets among it, goes
// straight to the next one, where it can't be told apart any more.
func (r *reducer) arriving() Chain {
	c := Chain{Name: "arriving", Hook: "prerouting"}
	if !r.Sealed {
		c.Rules = append(c.Rules, r.inward()...)
	}
	c.Rules = append(c.Rules, To(Drop{}))
	return c
}

// inward is what may come in.
func (r *reducer) inward() []Rule {
	// Neighbour discovery, and errors: path MTU discovery needs them. The agent has
	// no socket that could read any (privdrop.Spec.DenyPing).
	out := []Rule{
		To(Accept{}, MatchFamily{IPv6}, MatchProto{Proto: ProtoICMPv6}),
		To(Accept{}, MatchFamily{IPv4}, MatchProto{Proto: ProtoICMP}),
	}
	tcp := MatchProto{Proto: ProtoTCP}
	for _, port := range r.inbound() {
		out = append(out, To(Accept{}, tcp, MatchPort{port}, MatchOpening{}))
	}
	return append(out, To(Drop{}, tcp, MatchOpening{}), To(Accept{}, tcp))
}

func (r *reducer) input() Chain {
	c := Chain{Name: "input", Hook: "input", Closed: true}
	c.Rules = append(c.Rules, To(Accept{}, MatchIn{}),
		To(Drop{}, MatchDst{netip.MustParsePrefix("127.0.0.0/8")}),
		To(Drop{}, MatchDst{Single(netip.IPv6Loopback())}))
	if !r.Sealed {
		c.Rules = append(c.Rules, r.inward()...)
		// The guard's answers to redirected questions: from the link there is no UDP.
		c.Rules = append(c.Rules, To(Accept{}, MatchProto{Proto: ProtoUDP}, MatchSrcPort{53}))
	}
	return c
}

// redirect sends port 53 of every address to the guard, and what the policy may
// allow. What is refused whatever the guard thinks, goes its way to be refused at
// once.
func (r *reducer) redirect() Chain {
	c := Chain{Name: "to-guard", Hook: "output", Nat: true, Priority: -105}
	add := func(rs ...Rule) { c.Rules = append(c.Rules, rs...) }
	add(To(Leave{}, r.guardOwned()...))
	dns := map[Family]uint16{IPv4: r.DNSPort4, IPv6: r.DNSPort6}
	gate := map[Family]uint16{IPv4: r.GatePort4, IPv6: r.GatePort6}
	for _, f := range Families() {
		if port := dns[f]; port != 0 {
			for _, p := range []uint8{ProtoUDP, ProtoTCP} {
				add(To(Redirect{port}, MatchFamily{f}, MatchProto{Proto: p}, MatchPort{53}))
			}
		}
	}
	add(To(Leave{}, MatchOut{}))
	for _, a := range r.own {
		add(To(Leave{}, MatchDst{Single(a.Addr())}))
	}
	for _, b := range r.denied {
		add(To(Leave{}, b.matches()...))
	}
	for _, f := range Families() {
		if gate[f] == 0 {
			continue
		}
		for _, port := range sorted(r.Gated) {
			add(To(Redirect{gate[f]}, MatchFamily{f}, MatchProto{Proto: ProtoTCP}, MatchPort{port}))
		}
		for _, b := range ofFamily(r.allowed, f) {
			add(To(Redirect{gate[f]}, b.matches()...))
		}
	}
	return c
}

// matches are what a packet to b shows.
func (b Box) matches() []Match {
	ms := []Match{MatchDst{b.Prefix}}
	if b.Proto != 0 {
		ms = append(ms, MatchProto{Proto: b.Proto})
	}
	if b.Port != 0 {
		ms = append(ms, MatchPort{b.Port})
	}
	return ms
}

// listener is a socket of the guard's.
type listener struct {
	addr  netip.Prefix
	proto uint8
	port  uint16
}

func (r *reducer) listeners() []listener {
	var out []listener
	v4, v6 := netip.MustParsePrefix("127.0.0.1/32"), Single(netip.IPv6Loopback())
	for _, l := range []listener{
		{v4, ProtoUDP, r.DNSPort4}, {v4, ProtoTCP, r.DNSPort4}, {v4, ProtoTCP, r.GatePort4},
		{v6, ProtoUDP, r.DNSPort6}, {v6, ProtoTCP, r.DNSPort6}, {v6, ProtoTCP, r.GatePort6},
	} {
		if l.port != 0 {
			out = append(out, l)
		}
	}
	return out
}

// uids are those of processes that live here.
func (r *reducer) uids() []uint32 {
	out := []uint32{0, r.AgentUID, r.GuardUID}
	slices.Sort(out)
	return slices.Compact(out)
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

func (r *reducer) inbound() []uint16 {
	var out []uint16
	for _, e := range r.Inbound {
		out = append(out, e.Port)
	}
	return sorted(out)
}
