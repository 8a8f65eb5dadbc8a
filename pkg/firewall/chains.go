package firewall

import (
	"net/netip"
	"slices"
)

// builder collects a Plan.
type builder struct {
	Config
	plan        *Plan
	deny, allow map[family]string   // names of the static sets, if any
	granted     map[family][]string // and of those that end
}

// never returns the blocks that no policy opens: RFC 6890's addresses that
// name no one else's machine, clouds' metadata services, and these as IPv6
// carries them (RFC 6052, RFC 3056, RFC 4291).
func never() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range []string{
		"0.0.0.0/8", "169.254.0.0/16", "168.63.129.16/32", "224.0.0.0/4", "240.0.0.0/4",
		"::/128", "fd00:ec2::254/128", "ff00::/8",
		"::ffff:0:0/96", "64:ff9b::a9fe:0/112", "64:ff9b::a83f:8110/128", "2002:a9fe::/32",
	} {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// engineDNS is where container engines put a DNS server that answers for
// names of the container network, and asks others for the rest: on port 53 by
// a NAT rule, and in truth on a random port.
func engineDNS() netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 11}) }

// addStatic adds the set of those boxes that are of family f, and its name to
// names.
func (b *builder) addStatic(names map[family]string, name string, f family, boxes []box) {
	mine := disjoint(ofFamily(boxes, f))
	if len(mine) == 0 {
		return
	}
	s := set{name: hashed(name, f, mine), family: f, kind: static, boxes: mine}
	b.plan.sets = append(b.plan.sets, s)
	names[f] = s.name
}

// refuse says no to what matches fit, with an answer and a record.
func refuse(matches ...match) rule { return rule{matches, jump{"refuse"}} }

func to(v verdict, matches ...match) rule { return rule{matches, v} }

// addRefuse adds the chain that refuses, and the sets that limit its log.
func (b *builder) addRefuse() {
	c := chain{name: "refuse"}
	if b.DropGroup != 0 {
		for _, f := range families() {
			s := meterSet(f)
			b.plan.sets = append(b.plan.sets, set{name: s, family: f, kind: meter})
			c.rules = append(c.rules, b.logPorted(f, logPrefix)...)
			c.rules = append(c.rules,
				to(log{b.DropGroup, s, false, logPrefix}, matchFamily{f}, matchProto{protoTCP, true}, matchProto{protoUDP, true}))
		}
	}
	c.rules = append(c.rules, to(count{}), to(reset{}, matchProto{proto: protoTCP}), to(prohibit{}))
	b.plan.chains = append(b.plan.chains, c)
}

// logPorted records TCP and UDP.
func (b *builder) logPorted(f family, text string) []rule {
	v := log{b.DropGroup, meterSet(f), true, text}
	return []rule{to(v, matchFamily{f}, matchProto{proto: protoTCP}), to(v, matchFamily{f}, matchProto{proto: protoUDP})}
}

// addObserve adds the chain that lets out what would be refused.
func (b *builder) addObserve() {
	c := chain{name: "observe"}
	if b.DropGroup != 0 {
		for _, f := range families() {
			c.rules = append(c.rules, b.logPorted(f, ObservedPrefix)...)
		}
	}
	c.rules = append(c.rules, to(count{}), to(accept{}))
	b.plan.chains = append(b.plan.chains, c)
}

// output decides what may leave. Each rule may rely on those before it.
func (b *builder) output() chain {
	c := chain{name: "output", hook: "output", closed: true}
	add := func(rs ...rule) { c.rules = append(c.rules, rs...) }

	add(to(drop{}, matchState{stateInvalid}))

	// The kernel's own neighbour discovery, without which there is no IPv6.
	// From a process it would be a way to send data. Group membership reports
	// are the kernel's too; nothing here is for multicast.
	icmp6 := matchProto{proto: protoICMPv6}
	for _, typ := range []uint8{133, 135, 136} {
		add(refuse(icmp6, matchICMP{typ}, matchOwned{}),
			to(accept{}, icmp6, matchICMP{typ}, matchHopLimit{}))
	}
	add(to(drop{}, icmp6, matchICMP{143}), to(drop{}, matchProto{proto: protoIGMP}))

	// Over IPv6 any process may send from addresses that are not its own
	// (IP_FREEBIND, ip(7)). A packet as if from outside, sent over loopback or to
	// where one may send, makes connection tracking take what is sent there for
	// the reply of an established flow. The resets that refuse below are the
	// kernel's, and seem to come from where one may not go.
	add(refuse(matchOwned{}, matchForeign{}))
	// Nor may what has no owner: sockets that were closed, and those that the kernel
	// makes for a process, SMC's for one (net/smc). Nothing but resets is left.
	add(to(drop{}, matchForeign{}, matchProto{proto: protoTCP, not: true}),
		to(drop{}, matchForeign{}, matchProto{proto: protoTCP}, matchReset{not: true}))

	// Nor may anyone speak first as the engine's DNS: loopback's addresses are free
	// to bind to, and connection tracking would take what the guard asks later for
	// the reply, to be delivered as it is and not to the engine.
	add(refuse(matchSrc{engineDNS()}, matchOriginal{}))
	if !b.Sealed {
		add(b.answers()...)
	}

	// Nor may it ask whom it reaches to send it on (RFC 8754): over IPv6 any
	// process may add a routing header.
	add(refuse(matchFamily{ipv6}, matchRouted{}))

	// The guard's DNS servers come before the blocks that no one may reach,
	// since clouds put theirs there.
	if !b.Sealed {
		add(b.upstreams()...)
	}

	// Replies are left out here, else hosts of a denied block could not be
	// served by an inbound port. Flows that go out are not: a block that is
	// newly denied ends them.
	for _, f := range families() {
		add(refuse(matchFamily{f}, matchOriginal{}, matchSet{set: b.deny[f]}))
	}
	add(refuse(matchDst{single(engineDNS())}))

	// A redirected packet still shows the interface that it would have left
	// by: hence the second and third rule. Without the match on NAT, a socket
	// bound to that interface could send to 127.0.0.1 on the wire.
	add(to(accept{}, matchOut{}),
		to(accept{}, matchDNAT{}, matchDst{netip.MustParsePrefix("127.0.0.0/8")}),
		to(accept{}, matchDNAT{}, matchDst{single(netip.IPv6Loopback())}))

	add(refuse(matchForeign{})) // whoever sent it, it does not get out

	if !b.Sealed {
		// No query goes out but the guard's, not even in an established flow: a
		// packet from a port that the guard used a moment ago is part of the
		// guard's flow, and so is not redirected.
		for _, p := range []uint8{protoUDP, protoTCP} {
			add(refuse(matchProto{proto: p}, matchPort{53}, matchOriginal{}))
		}
		for _, f := range families() {
			for _, s := range b.allowed(f) {
				add(to(accept{}, matchFamily{f}, matchSet{set: s}))
			}
		}
		// Where names are looked at, nobody goes out but the guard: not around the
		// redirection, and not in what is left of a flow of the guard's.
		for _, port := range sorted(b.Gated) {
			for _, other := range b.others() {
				around := []match{matchProto{proto: protoTCP}, matchPort{port}, matchOriginal{}, other}
				if !b.Observe {
					add(refuse(around...))
					continue
				}
				for _, f := range families() {
					add(refuse(append([]match{matchFamily{f}}, append(around, matchSet{set: leaseSet(f)})...)...))
				}
			}
		}
		add(b.goingOn()...)
		for _, f := range families() {
			add(to(accept{}, matchFamily{f}, matchSet{set: leaseSet(f)}))
		}
		add(b.ended()...)
		if b.Observe {
			for _, p := range []uint8{protoTCP, protoUDP} {
				add(to(jump{"observe"}, matchProto{proto: p}))
			}
		}
	}
	add(refuse())
	return c
}

// upstreams lets the guard, and nobody else, reach its DNS servers.
func (b *builder) upstreams() []rule {
	var out []rule
	if b.engine() {
		b.plan.sets = append(b.plan.sets, set{name: askedSet, kind: asked}, set{name: guessedSet, kind: guessed})
		out = append(out,
			to(remember{askedSet}, append(b.guardOwned(), matchDst{single(engineDNS())}, matchProto{proto: protoUDP})...),
			to(accept{}, forwarded()...), guessing())
	}
	for _, u := range plainUpstreams(b.Upstreams) {
		for _, p := range []uint8{protoUDP, protoTCP} {
			guards := b.guardOwned()
			ms := append(guards, matchDst{single(u.Addr())}, matchProto{proto: p})
			if u.Addr() == engineDNS() { // its port is random by now
				out = append(out, to(accept{}, append(ms, matchOriginal{})...))
				continue
			}
			ms = append(ms, matchPort{u.Port()})
			out = append(out, to(accept{}, ms...))
			if u.Port() != 53 { // those are refused further down
				out = append(out, refuse(append(ms[len(guards):], matchOriginal{})...))
			}
		}
	}
	return out
}

// engine says whether the guard asks the engine's DNS.
func (b *builder) engine() bool {
	return slices.ContainsFunc(b.Upstreams, func(u netip.AddrPort) bool { return u.Addr().Unmap() == engineDNS() })
}

// forwarded matches a question that the engine passes on for the guard. Docker's
// daemon asks outside servers from within this network namespace, as root
// (libnetwork/resolver.go), and keeps the identifier of the question. So only
// what the guard has asked a moment ago can pass, and of that only the engine's
// repetition: what agent-init starts as the agent never is root. Another root, in
// a shell or in a container that shares this network, would have to guess, and its
// first guess that is wrong ends it for a while: the engine never has to. What
// stays on loopback is nothing that it passes on, and must not tell whether a guess
// is right.
func forwarded() []match {
	return []match{matchUID{uid: 0}, matchProto{proto: protoUDP}, matchPort{53}, matchOut{not: true}, matchCalm{guessedSet}, matchQuery{askedSet}}
}

// guessing notes what forwarded did not match. Root's questions to the engine,
// which go to loopback, are none.
func guessing() rule {
	return to(alarm{guessedSet}, matchUID{uid: 0}, matchProto{proto: protoUDP}, matchPort{53}, matchOut{not: true})
}

// input decides what may come in. What is refused gets no answer.
func (b *builder) input() chain {
	c := chain{name: "input", hook: "input", closed: true}
	add := func(rs ...rule) { c.rules = append(c.rules, rs...) }
	add(to(drop{}, matchState{stateInvalid}),
		to(accept{}, matchIn{}),
		to(drop{}, matchDst{netip.MustParsePrefix("127.0.0.0/8")}),
		to(drop{}, matchDst{single(netip.IPv6Loopback())}))
	icmp6 := matchProto{proto: protoICMPv6}
	for _, typ := range []uint8{134, 135, 136} { // router and neighbour discovery, RFC 4861
		add(to(accept{}, icmp6, matchICMP{typ}, matchHopLimit{}))
	}
	if b.Sealed {
		return c
	}
	add(b.repliesIn()...)
	// Errors about packets of our flows: path MTU discovery needs them.
	for _, typ := range []uint8{3, 11} {
		add(to(accept{}, matchState{stateRelated}, matchProto{proto: protoICMP}, matchICMP{typ}))
	}
	for _, typ := range []uint8{1, 2, 3} {
		add(to(accept{}, matchState{stateRelated}, icmp6, matchICMP{typ}))
	}
	for _, e := range b.inbound() {
		ms := []match{matchState{stateNew}, matchProto{proto: e.Proto}, matchPort{e.Port}}
		if e.Proto == protoTCP {
			// Connection tracking picks up flows in their middle: a revoked one
			// from this port would come back as one from outside.
			ms = append(ms, matchSYN{})
		}
		add(to(accept{}, ms...))
	}
	// Who publishes a port and forgets it here would look for the fault elsewhere.
	for _, f := range families() {
		if b.DropGroup != 0 {
			add(to(log{b.DropGroup, meterSet(f), true, InboundPrefix}, matchFamily{f}, matchState{stateNew}, matchProto{proto: protoTCP}, matchSYN{}))
		}
	}
	return c
}

// postrouting keeps what is addressed to loopback off the wire: a redirected
// packet of a socket that is bound to an interface would leave by it.
func (b *builder) postrouting() chain {
	return chain{name: "postrouting", hook: "postrouting", rules: []rule{
		to(drop{}, matchOut{not: true}, matchDst{netip.MustParsePrefix("127.0.0.0/8")}),
		to(drop{}, matchOut{not: true}, matchDst{single(netip.IPv6Loopback())}),
	}}
}

// redirect sends port 53 of every address, and the gated ports of leased
// addresses, to the guard. Container engines do the same for their own DNS
// server at priority -100.
func (b *builder) redirect() chain {
	c := chain{name: "to-guard", hook: "output", nat: true, priority: -105}
	add := func(rs ...rule) { c.rules = append(c.rules, rs...) }
	add(to(leave{}, b.guardOwned()...))
	if b.engine() {
		add(to(leave{}, forwarded()...), guessing())
	}
	dns := map[family]uint16{ipv4: b.DNSPort4, ipv6: b.DNSPort6}
	gate := map[family]uint16{ipv4: b.GatePort4, ipv6: b.GatePort6}
	for _, f := range families() {
		if port := dns[f]; port != 0 {
			for _, p := range []uint8{protoUDP, protoTCP} {
				add(to(redirect{port}, matchFamily{f}, matchProto{proto: p}, matchPort{53}))
			}
		}
		if gate[f] == 0 {
			continue
		}
		for _, s := range b.allowed(f) {
			add(to(leave{}, matchFamily{f}, matchSet{set: s}))
		}
		for _, port := range sorted(b.Gated) {
			add(to(redirect{gate[f]}, matchFamily{f}, matchProto{proto: protoTCP}, matchPort{port}, matchSet{set: leaseSet(f)}))
		}
	}
	return c
}

// plainUpstreams are DNS servers as packets show them, each once, in order.
func plainUpstreams(list []netip.AddrPort) []netip.AddrPort {
	var out []netip.AddrPort
	for _, u := range list {
		out = append(out, netip.AddrPortFrom(u.Addr().Unmap().WithZone(""), u.Port()))
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}

// sorted returns ports in order, each once.
func sorted(ports []uint16) []uint16 {
	ports = slices.Clone(ports)
	slices.Sort(ports)
	return slices.Compact(ports)
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
