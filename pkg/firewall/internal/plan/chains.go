package plan

import (
	"net/netip"
	"slices"
)

// builder collects a Plan.
type builder struct {
	Config
	plan        *Plan
	deny, allow map[Family]string   // names of the static sets, if any
	granted     map[Family][]string // and of those that end
}

// Never returns the blocks that no policy opens: RFC 6890's addresses that
// name no one else's machine, clouds' metadata services, and these as IPv6
// carries them (RFC 6052, RFC 3056, RFC 4291).
func Never() []netip.Prefix {
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

// EngineDNS is where container engines put a DNS server that answers for
// names of the container network, and asks others for the rest: on port 53 by
// a NAT rule, and in truth on a random port.
func EngineDNS() netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 11}) }

// addStatic adds the set of those boxes that are of family f, and its name to
// names.
func (b *builder) addStatic(names map[Family]string, name string, f Family, boxes []Box) {
	mine := disjoint(ofFamily(boxes, f))
	if len(mine) == 0 {
		return
	}
	s := Set{Name: hashed(name, f, mine), Family: f, Kind: Static, Boxes: mine}
	b.plan.Sets = append(b.plan.Sets, s)
	names[f] = s.Name
}

// refuse says no to what matches fit, with an answer and a record.
func refuse(matches ...Match) Rule { return Rule{matches, Jump{"refuse"}} }

// To is the rule that does v with what every one of matches fits.
func To(v Verdict, matches ...Match) Rule { return Rule{matches, v} }

// addRefuse adds the chain that refuses, and the sets that limit its log.
func (b *builder) addRefuse() {
	c := Chain{Name: "refuse"}
	if b.DropGroup != 0 {
		for _, f := range Families() {
			s := MeterSet(f)
			b.plan.Sets = append(b.plan.Sets, Set{Name: s, Family: f, Kind: Meter})
			c.Rules = append(c.Rules, b.logPorted(f, LogPrefix)...)
			c.Rules = append(c.Rules,
				To(Log{b.DropGroup, s, false, LogPrefix}, MatchFamily{f}, MatchProto{ProtoTCP, true}, MatchProto{ProtoUDP, true}))
		}
	}
	c.Rules = append(c.Rules, To(Count{}), To(Reset{}, MatchProto{Proto: ProtoTCP}), To(Prohibit{}))
	b.plan.Chains = append(b.plan.Chains, c)
}

// logPorted records TCP and UDP.
func (b *builder) logPorted(f Family, text string) []Rule {
	v := Log{b.DropGroup, MeterSet(f), true, text}
	return []Rule{To(v, MatchFamily{f}, MatchProto{Proto: ProtoTCP}), To(v, MatchFamily{f}, MatchProto{Proto: ProtoUDP})}
}

// addObserve adds the chain that lets out what would be refused.
func (b *builder) addObserve() {
	c := Chain{Name: "observe"}
	if b.DropGroup != 0 {
		for _, f := range Families() {
			c.Rules = append(c.Rules, b.logPorted(f, ObservedPrefix)...)
		}
	}
	c.Rules = append(c.Rules, To(Count{}), To(Accept{}))
	b.plan.Chains = append(b.plan.Chains, c)
}

// output decides what may leave. Each rule may rely on those before it.
func (b *builder) output() Chain {
	c := Chain{Name: "output", Hook: "output", Closed: true}
	add := func(rs ...Rule) { c.Rules = append(c.Rules, rs...) }

	add(To(Drop{}, MatchState{StateInvalid}))

	// The kernel's own neighbour discovery, without which there is no IPv6.
	// From a process it would be a way to send data. Group membership reports
	// are the kernel's too; nothing here is for multicast.
	icmp6 := MatchProto{Proto: ProtoICMPv6}
	for _, typ := range []uint8{133, 135, 136} {
		add(refuse(icmp6, MatchICMP{typ}, MatchOwned{}),
			To(Accept{}, icmp6, MatchICMP{typ}, MatchHopLimit{}))
	}
	add(To(Drop{}, icmp6, MatchICMP{143}), To(Drop{}, MatchProto{Proto: ProtoIGMP}))

	// Over IPv6 any process may send from addresses that are not its own
	// (IP_FREEBIND, ip(7)). A packet as if from outside, sent over loopback or to
	// where one may send, makes connection tracking take what is sent there for
	// the reply of an established flow. The resets that refuse below are the
	// kernel's, and seem to come from where one may not go.
	add(refuse(MatchOwned{}, MatchForeign{}))
	// Nor may what has no owner: sockets that were closed, and those that the kernel
	// makes for a process, SMC's for one (net/smc). Nothing but resets is left.
	add(To(Drop{}, MatchForeign{}, MatchProto{Proto: ProtoTCP, Not: true}),
		To(Drop{}, MatchForeign{}, MatchProto{Proto: ProtoTCP}, MatchReset{Not: true}))

	// Nor may anyone speak first as the engine's DNS: loopback's addresses are free
	// to bind to, and connection tracking would take what the guard asks later for
	// the reply, to be delivered as it is and not to the engine.
	add(refuse(MatchSrc{EngineDNS()}, MatchOriginal{}))
	if !b.Sealed {
		add(b.answers()...)
	}

	// Nor may it ask whom it reaches to send it on (RFC 8754): over IPv6 any
	// process may add a routing header.
	add(refuse(MatchFamily{IPv6}, MatchRouted{}))

	// The guard's DNS servers come before the blocks that no one may reach,
	// since clouds put theirs there.
	if !b.Sealed {
		add(b.upstreams()...)
	}

	// Replies are left out here, else hosts of a denied block could not be
	// served by an inbound port. Flows that go out are not: a block that is
	// newly denied ends them.
	for _, f := range Families() {
		add(refuse(MatchFamily{f}, MatchOriginal{}, MatchSet{Set: b.deny[f]}))
	}
	add(refuse(MatchDst{Single(EngineDNS())}))

	// A redirected packet still shows the interface that it would have left
	// by: hence the second and third rule. Without the match on NAT, a socket
	// bound to that interface could send to 127.0.0.1 on the wire.
	add(To(Accept{}, MatchOut{}),
		To(Accept{}, MatchDNAT{}, MatchDst{netip.MustParsePrefix("127.0.0.0/8")}),
		To(Accept{}, MatchDNAT{}, MatchDst{Single(netip.IPv6Loopback())}))

	add(refuse(MatchForeign{})) // whoever sent it, it does not get out

	if !b.Sealed {
		add(b.permitted()...)
	}
	add(refuse())
	return c
}

// permitted lets out what the policy allows, and no question or connection around the guard.
func (b *builder) permitted() (out []Rule) {
	add := func(rs ...Rule) { out = append(out, rs...) }
	// No query goes out but the guard's, not even in an established flow: a
	// packet from a port that the guard used a moment ago is part of the
	// guard's flow, and so is not redirected.
	for _, p := range []uint8{ProtoUDP, ProtoTCP} {
		add(refuse(MatchProto{Proto: p}, MatchPort{53}, MatchOriginal{}))
	}
	for _, f := range Families() {
		for _, s := range b.allowed(f) {
			add(To(Accept{}, MatchFamily{f}, MatchSet{Set: s}))
		}
	}
	// Where names are looked at, nobody goes out but the guard: not around the
	// redirection, and not in what is left of a flow of the guard's.
	for _, port := range sorted(b.Gated) {
		for _, other := range b.others() {
			around := []Match{MatchProto{Proto: ProtoTCP}, MatchPort{port}, MatchOriginal{}, other}
			if !b.Observe {
				add(refuse(around...))
				continue
			}
			for _, f := range Families() {
				add(refuse(append([]Match{MatchFamily{f}}, append(around, MatchSet{Set: LeaseSet(f)})...)...))
			}
		}
	}
	add(b.goingOn()...)
	for _, f := range Families() {
		add(To(Accept{}, MatchFamily{f}, MatchSet{Set: LeaseSet(f)}))
	}
	add(b.ended()...)
	if b.Observe {
		for _, p := range []uint8{ProtoTCP, ProtoUDP} {
			add(To(Jump{"observe"}, MatchProto{Proto: p}))
		}
	}
	return out
}

// upstreams lets the guard, and nobody else, reach its DNS servers.
func (b *builder) upstreams() []Rule {
	var out []Rule
	if b.engine() {
		b.plan.Sets = append(b.plan.Sets, Set{Name: AskedSet, Kind: Asked}, Set{Name: guessedSet, Kind: Guessed})
		out = append(out,
			To(Remember{AskedSet}, append(b.guardOwned(), MatchDst{Single(EngineDNS())}, MatchProto{Proto: ProtoUDP})...))
		out = append(out, b.forwarded(Accept{})...)
	}
	for _, u := range plainUpstreams(b.Upstreams) {
		for _, p := range []uint8{ProtoUDP, ProtoTCP} {
			guards := b.guardOwned()
			ms := append(guards, MatchDst{Single(u.Addr())}, MatchProto{Proto: p})
			if u.Addr() == EngineDNS() { // its port is random by now
				out = append(out, To(Accept{}, append(ms, MatchOriginal{})...))
				continue
			}
			ms = append(ms, MatchPort{u.Port()})
			out = append(out, To(Accept{}, ms...))
			if u.Port() != 53 { // those are refused further down
				out = append(out, refuse(append(ms[len(guards):], MatchOriginal{})...))
			}
		}
	}
	return out
}

// engine says whether the guard asks the engine's DNS.
func (b *builder) engine() bool {
	return slices.ContainsFunc(b.Upstreams, func(u netip.AddrPort) bool { return u.Addr().Unmap() == EngineDNS() })
}

// Forwarded matches a question that the engine passes on for the guard, under a uid. Docker's
// daemon asks outside servers from within this network namespace, as root
// (libnetwork/resolver.go), and keeps the identifier of the question. So only
// what the guard has asked a moment ago can pass, and of that only the engine's
// repetition: what agent-init starts as the agent never is root. Another root, in
// a shell or in a container that shares this network, would have to guess, and its
// first guess that is wrong ends it for a while: the engine never has to. What
// stays on loopback is nothing that it passes on, and must not tell whether a guess
// is right.
func Forwarded(uid uint32) []Match {
	return []Match{MatchUID{UID: uid}, MatchProto{Proto: ProtoUDP}, MatchPort{53}, MatchOut{Not: true}, MatchCalm{guessedSet}, MatchQuery{AskedSet}}
}

// forwarded does as it says with what Forwarded matches, and notes what it did not
// match. The engine's own questions, which go to loopback, are none.
func (b *builder) forwarded(verdict Verdict) []Rule {
	var out []Rule
	for _, uid := range b.engineUIDs() {
		out = append(out, To(verdict, Forwarded(uid)...),
			To(Alarm{guessedSet}, MatchUID{UID: uid}, MatchProto{Proto: ProtoUDP}, MatchPort{53}, MatchOut{Not: true}))
	}
	return out
}

// engineUIDs are those that the engine may have here. The agent's is none of them.
func (b *builder) engineUIDs() []uint32 {
	if b.EngineUID == 0 || b.EngineUID == b.AgentUID {
		return []uint32{0}
	}
	return []uint32{0, b.EngineUID}
}

// input decides what may come in. What is refused gets no answer.
func (b *builder) input() Chain {
	c := Chain{Name: "input", Hook: "input", Closed: true}
	add := func(rs ...Rule) { c.Rules = append(c.Rules, rs...) }
	add(To(Drop{}, MatchState{StateInvalid}),
		To(Accept{}, MatchIn{}),
		To(Drop{}, MatchDst{netip.MustParsePrefix("127.0.0.0/8")}),
		To(Drop{}, MatchDst{Single(netip.IPv6Loopback())}))
	icmp6 := MatchProto{Proto: ProtoICMPv6}
	for _, typ := range []uint8{134, 135, 136} { // router and neighbour discovery, RFC 4861
		add(To(Accept{}, icmp6, MatchICMP{typ}, MatchHopLimit{}))
	}
	if b.Sealed {
		return c
	}
	add(b.repliesIn()...)
	// Errors about packets of our flows: path MTU discovery needs them.
	for _, typ := range []uint8{3, 11} {
		add(To(Accept{}, MatchState{StateRelated}, MatchProto{Proto: ProtoICMP}, MatchICMP{typ}))
	}
	for _, typ := range []uint8{1, 2, 3} {
		add(To(Accept{}, MatchState{StateRelated}, icmp6, MatchICMP{typ}))
	}
	for _, e := range b.inbound() {
		ms := []Match{MatchState{StateNew}, MatchProto{Proto: e.Proto}, MatchPort{e.Port}}
		if e.Proto == ProtoTCP {
			// Connection tracking picks up flows in their middle: a revoked one
			// from this port would come back as one from outside.
			ms = append(ms, MatchSYN{})
		}
		add(To(Accept{}, ms...))
	}
	// Who publishes a port and forgets it here would look for the fault elsewhere.
	for _, f := range Families() {
		if b.DropGroup != 0 {
			add(To(Log{b.DropGroup, MeterSet(f), true, InboundPrefix}, MatchFamily{f}, MatchState{StateNew}, MatchProto{Proto: ProtoTCP}, MatchSYN{}))
		}
	}
	return c
}

// postrouting keeps what is addressed to loopback off the wire: a redirected
// packet of a socket that is bound to an interface would leave by it.
func (b *builder) postrouting() Chain {
	return Chain{Name: "postrouting", Hook: "postrouting", Rules: []Rule{
		To(Drop{}, MatchOut{Not: true}, MatchDst{netip.MustParsePrefix("127.0.0.0/8")}),
		To(Drop{}, MatchOut{Not: true}, MatchDst{Single(netip.IPv6Loopback())}),
	}}
}

// redirect sends port 53 of every address, and the gated ports of leased
// addresses, to the guard. Container engines do the same for their own DNS
// server at priority -100.
func (b *builder) redirect() Chain {
	c := Chain{Name: "to-guard", Hook: "output", Nat: true, Priority: -105}
	add := func(rs ...Rule) { c.Rules = append(c.Rules, rs...) }
	add(To(Leave{}, b.guardOwned()...))
	if b.engine() {
		add(b.forwarded(Leave{})...)
	}
	dns := map[Family]uint16{IPv4: b.DNSPort4, IPv6: b.DNSPort6}
	gate := map[Family]uint16{IPv4: b.GatePort4, IPv6: b.GatePort6}
	for _, f := range Families() {
		if port := dns[f]; port != 0 {
			for _, p := range []uint8{ProtoUDP, ProtoTCP} {
				add(To(Redirect{port}, MatchFamily{f}, MatchProto{Proto: p}, MatchPort{53}))
			}
		}
		if gate[f] == 0 {
			continue
		}
		for _, s := range b.allowed(f) {
			add(To(Leave{}, MatchFamily{f}, MatchSet{Set: s}))
		}
		for _, port := range sorted(b.Gated) {
			add(To(Redirect{gate[f]}, MatchFamily{f}, MatchProto{Proto: ProtoTCP}, MatchPort{port}, MatchSet{Set: LeaseSet(f)}))
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

// Single is the block of one address.
func Single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
