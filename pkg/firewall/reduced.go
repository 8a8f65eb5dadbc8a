package firewall

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
func reducedPlan(c Config, allow, deny []box) (Plan, error) {
	for _, b := range allow {
		if b.proto != protoTCP {
			return Plan{}, errors.New("allow: a reduced plan can let nothing but tcp through")
		}
	}
	for _, e := range c.Inbound {
		if e.Proto != protoTCP {
			return Plan{}, errors.New("inbound: a reduced plan can let nothing but tcp in")
		}
	}
	r := &reducer{Config: c}
	for _, f := range families() {
		r.denied = append(r.denied, disjoint(ofFamily(deny, f))...)
		r.allowed = append(r.allowed, disjoint(ofFamily(allow, f))...)
	}
	// What is redirected by its port already needs no rule of its own.
	r.allowed = slices.DeleteFunc(r.allowed, func(b box) bool { return slices.Contains(c.Gated, b.port) })
	for _, l := range c.Local {
		if a := l.Addr().Unmap().WithZone(""); !a.IsLoopback() {
			r.own = append(r.own, netip.PrefixFrom(a, l.Bits()-(l.Addr().BitLen()-a.BitLen())))
		}
	}
	slices.SortFunc(r.own, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	r.own = slices.Compact(r.own)

	p := Plan{dropGroup: c.DropGroup, reduced: true, guard: c.GuardUID}
	p.chains = append(p.chains, chain{name: "refuse", rules: []rule{to(reset{}, matchProto{proto: protoTCP}), to(noPort{})}})
	if !c.Sealed {
		p.chains = append(p.chains, r.guard())
	}
	p.chains = append(p.chains, r.arriving(), r.output(), r.input(), chain{name: "forward", hook: "forward", closed: true})
	if !c.Sealed {
		p.chains = append(p.chains, r.redirect())
	}
	return p, nil
}

// reducer collects a reduced plan.
type reducer struct {
	Config
	allowed, denied []box
	own             []netip.Prefix
}

func (r *reducer) output() chain {
	c := chain{name: "output", hook: "output", closed: true}
	add := func(rs ...rule) { c.rules = append(c.rules, rs...) }

	// What stays here. After a redirection the packet still shows the interface
	// that it would have left by, and so do the replies.
	add(to(accept{}, matchOut{}))
	for _, a := range r.own {
		add(to(accept{}, matchDst{single(a.Addr())}))
	}
	if r.Sealed {
		add(refuse())
		return c
	}
	for _, l := range r.listeners() {
		add(to(accept{}, matchDst{l.addr}, matchProto{proto: l.proto}, matchPort{l.port}))
	}

	// Neighbour discovery, without which there is no IPv6. Types can't be told, so
	// it goes to the own networks only, and from those who live here not at all.
	icmp6 := matchProto{proto: protoICMPv6}
	for _, uid := range r.uids() {
		add(refuse(matchFamily{ipv6}, icmp6, matchUID{uid: uid}))
	}
	for _, p := range r.neighbours() {
		add(to(accept{}, icmp6, matchDst{p}))
	}

	add(to(jump{"guard"}, r.guardOwned()...))
	// Replies of what may be connected to.
	tcp := matchProto{proto: protoTCP}
	for _, port := range r.inbound() {
		add(refuse(tcp, matchSrcPort{port}, matchOpening{}), to(accept{}, tcp, matchSrcPort{port}))
	}
	add(refuse())
	return c
}

// guard decides where the guard may go. What it may not gets no answer: a refusal
// would end its connections in silence when a policy shrinks, which closes ports
// first; so it ends them itself, and the other side may hear of it.
func (r *reducer) guard() chain {
	c := chain{name: "guard"}
	add := func(rs ...rule) { c.rules = append(c.rules, rs...) }
	tcp := matchProto{proto: protoTCP}
	add(to(accept{}, tcp, matchReset{}))
	for _, u := range plainUpstreams(r.Upstreams) { // before the blocks that no one may reach: clouds put theirs there
		add(to(accept{}, matchDst{single(u.Addr())}, tcp, matchPort{u.Port()}))
	}
	for _, b := range r.denied {
		add(to(drop{}, b.matches()...))
	}
	for _, port := range sorted(r.Gated) {
		add(to(accept{}, tcp, matchPort{port}))
	}
	for _, b := range r.allowed {
		add(to(accept{}, b.matches()...))
	}
	add(to(drop{}))
	return c
}

// arriving decides what may come in from the link. Only packets from there pass
// this hook: what was sent here, replies to redirected packets among it, goes
// straight to the next one, where it can't be told apart any more.
func (r *reducer) arriving() chain {
	c := chain{name: "arriving", hook: "prerouting"}
	if !r.Sealed {
		c.rules = append(c.rules, r.inward()...)
	}
	c.rules = append(c.rules, to(drop{}))
	return c
}

// inward is what may come in.
func (r *reducer) inward() []rule {
	// Neighbour discovery, and errors: path MTU discovery needs them. The agent has
	// no socket that could read any (privdrop.Spec.DenyPing).
	out := []rule{
		to(accept{}, matchFamily{ipv6}, matchProto{proto: protoICMPv6}),
		to(accept{}, matchFamily{ipv4}, matchProto{proto: protoICMP}),
	}
	tcp := matchProto{proto: protoTCP}
	for _, port := range r.inbound() {
		out = append(out, to(accept{}, tcp, matchPort{port}, matchOpening{}))
	}
	return append(out, to(drop{}, tcp, matchOpening{}), to(accept{}, tcp))
}

func (r *reducer) input() chain {
	c := chain{name: "input", hook: "input", closed: true}
	c.rules = append(c.rules, to(accept{}, matchIn{}),
		to(drop{}, matchDst{netip.MustParsePrefix("127.0.0.0/8")}),
		to(drop{}, matchDst{single(netip.IPv6Loopback())}))
	if !r.Sealed {
		c.rules = append(c.rules, r.inward()...)
		// The guard's answers to redirected questions: from the link there is no UDP.
		c.rules = append(c.rules, to(accept{}, matchProto{proto: protoUDP}, matchSrcPort{53}))
	}
	return c
}

// redirect sends port 53 of every address to the guard, and what the policy may
// allow. What is refused whatever the guard thinks, goes its way to be refused at
// once.
func (r *reducer) redirect() chain {
	c := chain{name: "to-guard", hook: "output", nat: true, priority: -105}
	add := func(rs ...rule) { c.rules = append(c.rules, rs...) }
	add(to(leave{}, r.guardOwned()...))
	dns := map[family]uint16{ipv4: r.DNSPort4, ipv6: r.DNSPort6}
	gate := map[family]uint16{ipv4: r.GatePort4, ipv6: r.GatePort6}
	for _, f := range families() {
		if port := dns[f]; port != 0 {
			for _, p := range []uint8{protoUDP, protoTCP} {
				add(to(redirect{port}, matchFamily{f}, matchProto{proto: p}, matchPort{53}))
			}
		}
	}
	add(to(leave{}, matchOut{}))
	for _, a := range r.own {
		add(to(leave{}, matchDst{single(a.Addr())}))
	}
	for _, b := range r.denied {
		add(to(leave{}, b.matches()...))
	}
	for _, f := range families() {
		if gate[f] == 0 {
			continue
		}
		for _, port := range sorted(r.Gated) {
			add(to(redirect{gate[f]}, matchFamily{f}, matchProto{proto: protoTCP}, matchPort{port}))
		}
		for _, b := range ofFamily(r.allowed, f) {
			add(to(redirect{gate[f]}, b.matches()...))
		}
	}
	return c
}

// matches are what a packet to b shows.
func (b box) matches() []match {
	ms := []match{matchDst{b.prefix}}
	if b.proto != 0 {
		ms = append(ms, matchProto{proto: b.proto})
	}
	if b.port != 0 {
		ms = append(ms, matchPort{b.port})
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
	v4, v6 := netip.MustParsePrefix("127.0.0.1/32"), single(netip.IPv6Loopback())
	for _, l := range []listener{
		{v4, protoUDP, r.DNSPort4}, {v4, protoTCP, r.DNSPort4}, {v4, protoTCP, r.GatePort4},
		{v6, protoUDP, r.DNSPort6}, {v6, protoTCP, r.DNSPort6}, {v6, protoTCP, r.GatePort6},
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
