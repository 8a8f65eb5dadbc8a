package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// A packet is never let through for being part of a flow. Whose flow it is counts as well: one of the policy's
// addresses, one that is leased, or one that was leased when it last answered, and that nobody has taken out since.
// These last are in a set of their own, which the kernel fills: so a connection outlives its lease, and still ends with
// the one transaction that takes its address out of both sets, however many flows there are.
//
// Only answers put an address there. What the agent sends to one that never says anything keeps nothing open.

// onward says where the guard goes for those who are redirected to it. That may be to an address that is open to all as
// well, for a name that is not looked into where another one is.
func (b *builder) onward() Chain {
	c := Chain{Name: "onward"}
	for _, f := range Families() {
		for _, h := range []Holder{Gated, Agent} {
			c.add(accept, of(f), original, established, inSet(f.Kept(h).Name))
			c.add(accept, of(f), inSet(f.Leases(h).Name))
		}
	}
	// It ends a connection that is no longer allowed by a reset, which carries
	// nothing (RFC 9293, 3.5.2). Without it the server would wait for more.
	c.add(accept, original, established, tcp, reset)
	return c
}

// era has each flow marked that begins, and leads those of other eras to v. Those of the guard, and of senders, are in
// none: who has their sockets ends them.
func (b *builder) era(c *Chain, v Verdict) {
	if b.Era == 0 {
		return
	}
	c.add(setCtMark(b.Era), tcp, fresh)
	c.add(v, tcp, established, ofEra(b.Era).not(), ofEra(0).not())
}

// goingOn lets flows go on, those that went out and those that came in. Others have
// been refused by then, such as what goes to a denied block.
func (b *builder) goingOn(c *Chain) {
	c.add(jump("onward"), b.guardOwned()...)
	for _, f := range Families() {
		c.add(accept, of(f), original, established, inSet(f.Kept(Agent).Name))
		// With zones, what a socket of the guard's has left is in none of the flows here. Then this would be others'.
		if !b.GuardZone {
			c.add(jump("leftover"), of(f), tcp, original, established, inSet(f.Kept(Gated).Name))
		}
		// Nobody goes around the redirection. What began before there was one goes on, by the first of these rules.
		for _, h := range redirectedTo() {
			c.refuse(of(f), original, inSet(f.Leases(h).Name))
		}
	}
	for _, e := range b.inbound() {
		c.add(accept, reply, established, proto(e.Proto), sport(e.Port))
	}
	if b.Observe {
		c.add(accept, established)
	}
}

// repliesIn lets in what belongs to flows that may go on. What is merely related to a
// flow, an FTP helper's data connection for one, has to be allowed by itself.
func (b *builder) repliesIn(c *Chain) {
	for _, u := range plainUpstreams(b.Upstreams) {
		if u.Addr() == EngineDNS() { // which answers on loopback
			continue
		}
		for _, p := range ported() {
			c.add(accept, reply, established, src(u.Addr()), p, sport(u.Port()))
		}
	}
	if b.engine() { // what it has passed on; nobody else's questions get out
		c.add(accept, reply, established, udp, sport(53))
	}
	for _, f := range Families() {
		b.sendersIn(c, f)
		b.answeredFrom(c, f, Agent, Gated)
	}
	b.sendersLetIn(c)
	for _, e := range b.inbound() {
		c.add(accept, original, established, proto(e.Proto), dport(e.Port))
	}
	if b.Observe {
		c.add(accept, established)
	}
}

// answeredFrom lets in what is answered by whom all of holders may reach, and notes who has answered.
func (b *builder) answeredFrom(c *Chain, f Family, holders ...Holder) {
	from := func(v Verdict, set string) { c.add(v, of(f), reply, established, fromSet(set)) }
	from(drop, b.deny[f])
	for _, s := range b.allowed[f] {
		from(accept, s)
	}
	for _, of := range []func(Family, Holder) Set{Family.Kept, Family.Leases} {
		for _, h := range holders {
			from(keep(f.Kept(h).Name), of(f, h).Name)
		}
	}
	for _, h := range holders {
		from(accept, f.Leases(h).Name) // if the other set is full, it ends with its lease
	}
}

// unreachable are errors about packets of flows: path MTU discovery needs them.
func unreachable() [][]Match {
	return [][]Match{{icmp, icmpType(3)}, {icmp, icmpType(11)}, {icmp6, icmpType(1)}, {icmp6, icmpType(2)}, {icmp6, icmpType(3)}}
}

// addGranted adds sets of what is allowed for a time, one for each end and family. The
// kernel takes their elements out by itself: also where whoever granted it has been
// killed since. Nothing puts such an element elsewhere, so what is under way ends as well.
func (b *builder) addGranted() error {
	by := map[int64][]Entry{}
	for _, g := range b.Granted {
		by[g.Until.UnixMilli()] = append(by[g.Until.UnixMilli()], g.Entry)
	}
	for _, end := range slices.Sorted(maps.Keys(by)) {
		boxes, err := boxesOf(by[end], false)
		if err != nil {
			return fmt.Errorf("granted: %w", err)
		}
		for _, f := range Families() {
			b.allowed[f] = append(b.allowed[f], b.static("timed", f, boxes, end)...)
		}
	}
	return nil
}

// A DNS server of the guard's may be an address of this network namespace: the engine's, at 127.0.0.11, and those that
// a person has vouched for. Where nobody has its port any more, any process may bind it, and what that one answers
// would be the truth. So whoever sends as a server, or in reply to a question for one, is looked at, in both directions
// of a flow and also behind somebody's address translation.

// answers refuses whoever answers for a DNS server that is no address of this namespace, and has the others judged.
func (b *builder) answers(c *Chain) {
	here := false
	asServer := Chain{Name: "as-server"} // what is sent in reply to a question for one
	for _, u := range plainUpstreams(b.Upstreams) {
		mine := u.Addr() == EngineDNS() || slices.Contains(plainUpstreams(b.Here), u)
		here = here || mine || !b.AnyAgent
		for _, p := range ported() {
			from := []Match{src(u.Addr()), p}
			if u.Addr() != EngineDNS() { // whose port is random
				from = append(from, sport(u.Port()))
			}
			switch {
			case mine:
				c.add(jump("answers"), from...)
			case p == tcp: // the resets of our own refusals seem to come from there
				c.refuse(append(from, reset.not())...)
			default:
				c.refuse(from...)
			}
			// By a rule of somebody's that leads questions for a server outside to one in here, a service mesh's for
			// one. The guard's own answers to those that ask such a server, and are led to it, are of such flows too.
			if !b.AnyAgent {
				asServer.add(jump("answers"), p, asked(u))
			}
		}
	}
	if len(asServer.Rules) > 0 {
		c.add(jump(b.chain(asServer)), reply)
	}
	if here {
		b.plan.Chains = append(b.plan.Chains, b.judge())
	}
}

// judge returns to the caller for what a process sends that is not the agent's. A socket that was closed has no owner
// any more, and may have been the agent's: what it still sends is dropped. A reset is the kernel's, and says nothing.
func (b *builder) judge() Chain {
	c := Chain{Name: "answers"}
	if !b.AnyAgent {
		// Whoever asks such a server is led to the guard, which answers from ports that
		// nobody else can have. What it leaves to send as it closes has no owner either.
		for _, l := range []netip.AddrPort{netip.AddrPortFrom(self4.Addr(), b.DNSPort4), netip.AddrPortFrom(loopback6.Addr(), b.DNSPort6)} {
			if l.Port() != 0 {
				c.add(leave, src(l.Addr()), tcp, sport(l.Port()))
			}
		}
		c.refuse(uid(b.AgentUID))
	}
	c.add(leave, held)
	c.add(leave, tcp, reset)
	c.add(drop)
	return c
}
