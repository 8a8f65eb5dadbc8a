package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

type builder struct {
	Config
	plan    *Plan
	deny    map[Family]string   // names of static sets
	allowed map[Family][]string // likewise; those that end are the last

	routed map[Holder]map[Family][]string // what Allow is for the broker
}

// never returns the blocks that no policy opens: RFC 6890's addresses that name no one else's machine, clouds' metadata
// services, and these as IPv6 carries them (RFC 6052, RFC 3056, RFC 4291).
func never() (out []Box) {
	for _, s := range []string{
		"0.0.0.0/8", "169.254.0.0/16", "168.63.129.16/32", "224.0.0.0/4", "240.0.0.0/4",
		"::/128", "fd00:ec2::254/128", "ff00::/8",
		"::ffff:0:0/96", "64:ff9b::a9fe:0/112", "64:ff9b::a83f:8110/128", "2002:a9fe::/32",
	} {
		out = append(out, Box{Prefix: netip.MustParsePrefix(s)})
	}
	return out
}

// EngineDNS is where container engines put a DNS server that answers for names of the container network, and asks
// others for the rest: on port 53 by a NAT rule, and in truth on a random port.
func EngineDNS() netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 11}) }

// Addresses of this machine itself; the guard listens on the last two.
var loopback4, self4, loopback6 = netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("127.0.0.1/32"), single(netip.IPv6Loopback())

var linkLocal = netip.MustParsePrefix("fe80::/10")

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// add appends the rule that does v with what every one of matches fits.
//
//go:noinline // in each place, it makes 50 KB of the binary
func (c *Chain) add(v Verdict, matches ...Match) { c.Rules = append(c.Rules, Rule{matches, v}) }

// refuse appends the rule that says no to what matches fit, with an answer and a record.
//
//go:noinline // likewise
func (c *Chain) refuse(matches ...Match) { c.add(jump("refuse"), matches...) }

// and are the matches of ms and more, in a list of its own.
func and(ms []Match, more ...Match) []Match { return append(slices.Clip(ms), more...) }

// static adds the set of those boxes that are of family f, if there are any and it is not there, and returns
// its name. What is allowed until an end, in milliseconds, is a set that ends then.
func (b *builder) static(name string, f Family, boxes []Box, until ...int64) []string {
	mine := disjoint(ofFamily(boxes, f))
	if len(mine) == 0 {
		return nil
	}
	s := Set{Name: hashed(name, f, mine, until), Family: f, Static: true, Boxes: mine}
	for _, end := range until {
		s.Until = time.UnixMilli(end)
	}
	if _, err := b.plan.Set(s.Name); err != nil {
		b.plan.Sets = append(b.plan.Sets, s)
	}
	return []string{s.Name}
}

// addRefuse adds the chain that refuses, and the sets that limit its log.
func (b *builder) addRefuse() {
	c := Chain{Name: "refuse"}
	for _, f := range b.logged() {
		b.plan.Sets = append(b.plan.Sets, meter(f))
		b.logPorted(&c, f, TableName)
		c.add(b.log(f, TableName, false), of(f), tcp.not(), udp.not())
	}
	c.add(count)
	c.add(hangUp, tcp)
	c.add(prohibit)
	b.plan.Chains = append(b.plan.Chains, c)
}

// logged are the families whose refusals are recorded.
func (b *builder) logged() []Family {
	if b.DropGroup == 0 {
		return nil
	}
	return Families()
}

// log records within the limits of a family's meter.
func (b *builder) log(f Family, text string, ports bool) Verdict {
	return Verdict{Do: "log", To: meter(f).Name, N: b.DropGroup, Text: text, Ports: ports, Total: Limit{200, 400}}
}

func (b *builder) logPorted(c *Chain, f Family, text string) {
	for _, p := range []Match{tcp, udp} {
		c.add(b.log(f, text, true), of(f), p)
	}
}

// addObserve adds the chain that lets out what would be refused.
func (b *builder) addObserve() {
	c := Chain{Name: "observe"}
	for _, f := range b.logged() {
		b.logPorted(&c, f, ObservedPrefix)
	}
	c.add(count)
	c.add(accept)
	b.plan.Chains = append(b.plan.Chains, c)
}

// chain adds c, which others jump to, and returns its name.
func (b *builder) chain(c Chain) string {
	b.plan.Chains = append(b.plan.Chains, c)
	return c.Name
}

// neighbours decides about the kernel's own neighbour discovery, without which there is no IPv6. From a process it would
// be a way to send data. Group membership reports are the kernel's too; nothing here is for multicast.
func neighbours() Chain {
	c := Chain{Name: "neighbours"}
	for _, typ := range []uint8{133, 135, 136} {
		c.refuse(icmp6, icmpType(typ), owned)
		c.add(accept, icmp6, icmpType(typ), neighbourly)
	}
	c.add(drop, icmp6, icmpType(143))
	return c
}

// fromElsewhere decides about what is not sent from an address of this machine. Over IPv6 any process may send from such
// (IP_FREEBIND, ip(7)). A packet as if from outside, sent over loopback or to where one may send, makes connection
// tracking take what is sent there for the reply of an established flow. The resets that refuse below are the kernel's,
// as if from there.
func fromElsewhere() Chain {
	c := Chain{Name: "elsewhere"}
	c.refuse(owned)
	// Nor may what has no owner: sockets that were closed, and those that the kernel
	// makes for a process, SMC's for one (net/smc). Nothing but resets is left.
	c.add(drop, tcp.not())
	c.add(drop, tcp, reset.not())
	return c
}

// output decides what may leave. Each rule may rely on those before it. All packets pass it, those over loopback too, and
// what a rule asks for costs as much as a rule: so what several ask for first leads to a chain.
func (b *builder) output() Chain {
	c := Chain{Name: "output", Hook: "output", Closed: true}
	c.add(drop, invalid)

	c.add(jump(b.chain(neighbours())), icmp6)
	c.add(drop, igmp)
	c.add(jump(b.chain(fromElsewhere())), foreign)

	// Nor may anyone speak first as the engine's DNS: loopback's addresses are free to bind to, and connection tracking
	// would take what the guard asks later for the reply, to be delivered as it is and not to the engine.
	c.refuse(src(EngineDNS()), original)
	b.answers(&c)

	// Nor may it ask whom it reaches to send it on (RFC 8754): over IPv6 any process may add a routing header.
	c.refuse(of(IPv6), routed)

	// The guard's DNS servers come before the blocks that no one may reach, since clouds put theirs there.
	b.upstreams(&c)
	b.toSenders(&c)

	// Replies are left out here, else hosts of a denied block could not be served by an inbound port. Flows that go out
	// are not: a block that is newly denied ends them.
	for _, f := range Families() {
		c.refuse(of(f), original, inSet(b.deny[f]))
	}
	c.refuse(dst(single(EngineDNS())))

	// A redirected packet still shows the interface that it would have left by: hence the second and third rule.
	// Without the match on NAT, a socket bound to that interface could send to 127.0.0.1 on the wire.
	c.add(accept, staying)
	c.add(accept, redirected, dst(loopback4))
	c.add(accept, redirected, dst(loopback6))

	b.towardsAgents(&c)
	c.refuse(foreign) // whoever sent it, it does not get out

	if !b.Sealed {
		b.permitted(&c)
	}
	c.refuse()
	return c
}

// permitted lets out what the policy allows, and no question or connection around the guard.
func (b *builder) permitted(c *Chain) {
	if b.Era != 0 {
		eras := Chain{Name: "eras"}
		eras.add(leave, b.guardOwned()...)
		b.era(&eras, jump("refuse"))
		c.add(jump(b.chain(eras)))
	}
	// No query goes out but the guard's, not even in an established flow: a packet from a port that the guard used a
	// moment ago is part of the guard's flow, and so is not redirected.
	for _, p := range ported() {
		c.refuse(p, dport(53), original)
	}
	for _, f := range Families() {
		for _, s := range b.allowed[f] {
			c.add(accept, of(f), inSet(s))
		}
	}
	b.goingOn(c)
	for _, f := range Families() {
		c.add(accept, of(f), inSet(f.Leases(Agent).Name))
	}
	// What the guard still sends on a connection that is no longer allowed is dropped. The
	// reset of a refusal would end it here, before the guard has told the server.
	c.add(drop, and(b.guardOwned(), original, established, tcp)...)
	if b.Observe {
		c.add(jump("observe"), tcp)
		c.add(jump("observe"), udp)
	}
}

// upstreams lets the guard, and nobody else, reach its DNS servers.
func (b *builder) upstreams(c *Chain) {
	if b.engine() {
		b.plan.Sets = append(b.plan.Sets, askedSet, guessedSet)
		c.add(update(askedSet.Name, "@th,64,16"), and(b.guardOwned(), dst(single(EngineDNS())), udp)...)
		b.forwarded(c, accept)
	}
	asks, others := Chain{Name: "asks"}, Chain{} // the guard's, and what is refused to all others
	for _, u := range plainUpstreams(b.Upstreams) {
		for _, p := range ported() {
			there := []Match{dst(single(u.Addr())), p}
			if u.Addr() == EngineDNS() { // its port is random by now
				asks.add(accept, and(there, original)...)
				continue
			}
			there = append(there, dport(u.Port()))
			asks.add(accept, there...)
			if u.Port() != 53 { // those are refused further down
				others.refuse(and(there, original)...)
			}
		}
	}
	if len(asks.Rules) > 0 {
		c.add(jump(b.chain(asks)), b.guardOwned()...)
	}
	c.Rules = append(c.Rules, others.Rules...)
}

func (b *builder) engine() bool {
	return slices.ContainsFunc(b.Upstreams, func(u netip.AddrPort) bool { return u.Addr().Unmap() == EngineDNS() })
}

// forwarded does v with a question that the engine passes on for the guard. Docker's daemon asks outside servers from
// within this network namespace, as root (libnetwork/resolver.go), and keeps the identifier of the question. So only
// what the guard has asked a moment ago can pass, and of that only the engine's repetition: what agent-init starts as
// the agent never is root. Another root, in a shell or in a container that shares this network, would have to guess,
// and its first guess that is wrong ends it for a while: the engine never has to. What stays on loopback is nothing
// that it passes on, and must not tell whether a guess is right.
func (b *builder) forwarded(c *Chain, v Verdict) {
	uids := []uint32{0}
	if b.EngineUID != 0 && b.EngineUID != b.AgentUID {
		uids = append(uids, b.EngineUID)
	}
	for _, id := range uids {
		asks := []Match{uid(id), udp, dport(53), staying.not()}
		c.add(v, and(asks, Match{Field: "th dport", Not: true, Set: guessedSet.Name}, Match{Field: "@th,64,16", Set: askedSet.Name})...)
		c.add(update(guessedSet.Name, "th dport"), asks...)
	}
}

// input decides what may come in. What is refused gets no answer.
func (b *builder) input() Chain {
	c := Chain{Name: "input", Hook: "input", Closed: true}
	c.add(drop, invalid)
	c.add(accept, arriving)
	c.add(drop, dst(loopback4))
	c.add(drop, dst(loopback6))
	if b.isGateway() {
		b.byAgents(&c, "visitors")
	}
	for _, typ := range []uint8{134, 135, 136} { // router and neighbour discovery, RFC 4861
		c.add(accept, icmp6, icmpType(typ), neighbourly)
	}
	if b.Sealed {
		return c
	}
	b.era(&c, drop)
	b.repliesIn(&c)
	for _, e := range unreachable() {
		c.add(accept, append([]Match{related}, e...)...)
	}
	for _, e := range b.inbound() {
		ms := []Match{fresh, proto(e.Proto), dport(e.Port)}
		if slices.Contains(ms, tcp) {
			// Connection tracking picks up flows in their middle: a revoked one
			// from this port would come back as one from outside.
			ms = append(ms, first)
		}
		c.add(accept, ms...)
	}
	// Who publishes a port and forgets it here would look for the fault elsewhere.
	for _, f := range b.logged() {
		c.add(b.log(f, InboundPrefix, true), of(f), fresh, tcp, first)
	}
	return c
}

// postrouting keeps what is addressed to loopback off the wire: a redirected
// packet of a socket that is bound to an interface would leave by it.
func (b *builder) postrouting() Chain {
	c := Chain{Name: "postrouting", Hook: "postrouting"}
	c.add(drop, staying.not(), dst(loopback4))
	c.add(drop, staying.not(), dst(loopback6))
	return c
}

// redirect sends port 53 of every address to the guard, and what is leased to be looked into. Container engines do the
// same for their own DNS server at priority -100.
func (b *builder) redirect() Chain {
	c := Chain{Name: "to-guard", Hook: "output", Nat: true, Priority: -105}
	c.add(leave, b.guardOwned()...)
	for _, s := range b.senders() {
		c.add(leave, b.sentBy(s)...)
	}
	if b.engine() {
		b.forwarded(&c, leave)
	}
	for _, f := range Families() {
		b.redirectDNS(&c, f)
		gate := b.gate(f)
		if gate == 0 {
			continue
		}
		for _, s := range b.allowed[f] {
			c.add(leave, of(f), inSet(s))
		}
		for _, h := range redirectedTo() {
			c.add(redirect(gate), of(f), tcp, inSet(f.Leases(h).Name))
		}
	}
	return c
}

// zone puts what the guard begins apart. The kernel tells flows by their addresses and ports. So what one process has
// begun, from any port that it likes, can be taken for a part of what another one begins from there later, or keep it
// from a port. In a zone of its own (nf_conntrack_zones.h), a flow of the guard's is compared with those of the guard
// alone. The zone counts for the direction that it begins in; answers come to the zone where all others are, in which
// the kernel gives it a source port that no other flow has.
func (b *builder) zone() Chain {
	c := Chain{Name: "zone", Hook: "output", Priority: raw}
	c.add(zone(7), b.guardOwned()...) // any number but 0, where all other flows are
	return c
}

// guardOwned matches what the guard sends. Packets are told by who made the socket that sent them: the kernel keeps the
// user and the group that a process had then (f_cred of file(9), as nft_meta.c and xt_owner.c read it). A socket that
// was closed has neither, so the end of a connection is nobody's, and passes as part of an established flow only.
func (c Config) guardOwned() []Match {
	if c.AnyGroup {
		return []Match{uid(c.GuardUID)}
	}
	return []Match{uid(c.GuardUID), gid(c.GuardGID)}
}

// redirectDNS sends port 53 of every address of a family to the guard.
func (c Config) redirectDNS(to *Chain, f Family) {
	port := map[Family]uint16{IPv4: c.DNSPort4, IPv6: c.DNSPort6}[f]
	if port == 0 {
		return
	}
	for _, p := range ported() {
		to.add(redirect(port), of(f), p, dport(53))
	}
}

func (c Config) gate(f Family) uint16 {
	return map[Family]uint16{IPv4: c.GatePort4, IPv6: c.GatePort6}[f]
}

// inbound are the ports that may be connected to, each once, in order.
func (c Config) inbound() []Entry {
	return ordered(c.Inbound, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
	})
}

// plainUpstreams are DNS servers as packets show them, each once, in order.
func plainUpstreams(list []netip.AddrPort) []netip.AddrPort {
	var out []netip.AddrPort
	for _, u := range list {
		out = append(out, netip.AddrPortFrom(u.Addr().Unmap().WithZone(""), u.Port()))
	}
	return ordered(out, netip.AddrPort.Compare)
}

func sorted(ports []uint16) []uint16 { return ordered(ports, cmp.Compare[uint16]) }

func ordered[T comparable](list []T, compare func(a, b T) int) []T {
	return slices.Compact(slices.SortedFunc(slices.Values(list), compare))
}
