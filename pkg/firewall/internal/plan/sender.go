package plan

import (
	"errors"
	"fmt"
	"net/netip"
)

// The broker holds the keys of the agent, and reaches the servers that take them. It is told by the user and the group
// that made a socket, like the guard, and has sets of its own: of what is leased to it, and of what has answered. It
// reaches what is in them, over TCP, and nothing else: no DNS, nothing on loopback, and nothing of what the agent may
// reach. There it answers those who connect to its listener. Nobody else reaches anything for being in these sets.
//
// What the policy denies is denied to others: a route may lead to where the agent must not go. What no policy opens is
// denied to the broker as well.

// sender is a process of ours that goes out by itself.
type sender struct {
	For         Holder
	uid, gid    uint32
	allow, deny []Entry
	zone        uint16 // any number that is no other zone's
	answered    string // the chain with who has answered it
}

// chain is where what it sends is decided.
func (s sender) chain() string { return s.For.String() }

// senders are those that there are.
func (c Config) senders() (all []sender) {
	if c.BrokerUID != 0 {
		all = append(all, sender{Broker, c.BrokerUID, c.BrokerGID, c.BrokerAllow, c.BrokerDeny, 8, "answered"})
	}
	return all
}

func (c Config) checkBroker() error {
	switch {
	case c.BrokerUID == 0 && c.BrokerGID == 0 && c.BrokerPort4 == 0 && c.BrokerPort6 == 0 && len(c.BrokerAllow)+len(c.BrokerDeny) == 0:
		return nil
	case c.BrokerUID == 0:
		return errors.New("the broker needs a uid of its own, not 0")
	case c.BrokerUID == c.GuardUID:
		return errors.New("the broker needs another uid than the guard's")
	case c.BrokerUID == c.AgentUID && !c.AnyAgent:
		return errors.New("the broker needs another uid than the agent's")
	case c.BrokerGID == 0 && !c.AnyGroup:
		return errors.New("the broker needs a group of its own, not 0")
	case c.BrokerGID != 0 && c.AnyGroup:
		return errors.New("the broker has a group, and any is to count")
	case c.Reduced:
		return errors.New("a reduced plan can't tell whose addresses are leased, so it can have no broker")
	}
	return nil
}

// sentBy matches what a sender sends: see guardOwned.
func (c Config) sentBy(s sender) []Match {
	if c.AnyGroup {
		return []Match{uid(s.uid)}
	}
	return []Match{uid(s.uid), gid(s.gid)}
}

// addSender adds the sets of a sender, and the chains that decide what it sends, and what answers.
func (b *builder) addSender(s sender) error {
	boxes, err := boxesOf(s.allow, false)
	if err != nil {
		return fmt.Errorf("allow the %v: %w", s.For, err)
	}
	denied, err := boxesOf(s.deny, true)
	if err != nil {
		return fmt.Errorf("deny the %v: %w", s.For, err)
	}
	c := Chain{Name: s.chain()}
	b.answersCallers(&c)
	for _, p := range b.Inside.Networks {
		c.refuse(dst(p))
	}
	c.refuse(staying)
	c.refuse(tcp, dport(53))
	in := Chain{Name: s.answered}
	b.routed[s.For] = map[Family][]string{}
	for _, f := range Families() {
		leased, kept := f.Leases(s.For), f.Kept(s.For)
		routed := b.static("route", f, boxes)
		b.routed[s.For][f] = routed
		b.plan.Sets = append(b.plan.Sets, leased, kept)
		c.refuse(of(f), inSet(b.static("deny", f, append(never(), denied...))[0])) // of either family there is one
		c.add(accept, of(f), tcp, original, established, inSet(kept.Name))
		for _, set := range append(routed, leased.Name) {
			c.add(accept, of(f), tcp, original, inSet(set))
		}
		for _, set := range append(routed, kept.Name, leased.Name) {
			in.add(accept, of(f), fromSet(set))
		}
	}
	c.refuse()
	b.plan.Chains = append(b.plan.Chains, c, in)
	return nil
}

// answersCallers lets the broker answer those who are connected to its listener.
func (b *builder) answersCallers(c *Chain) {
	for _, l := range b.listener() {
		c.add(accept, staying, reply, established, src(l.Addr()), tcp, sport(l.Port()))
	}
	for _, l := range b.Inside.Broker {
		c.add(accept, reply, established, src(l.Addr()), tcp, sport(l.Port()))
	}
}

// listener is where the broker is connected to.
func (c Config) listener() (out []netip.AddrPort) {
	for _, l := range []netip.AddrPort{netip.AddrPortFrom(self4.Addr(), c.BrokerPort4), netip.AddrPortFrom(loopback6.Addr(), c.BrokerPort6)} {
		if l.Port() != 0 {
			out = append(out, l)
		}
	}
	return out
}

// leftover decides what is sent to where a sender or the guard is connected, in a flow that may be its own. Sockets that it
// has closed have no owner, and still send what it had written, and the end. Others who send there may be in such a flow
// by using its port again; but they begin anew, by a segment that is not let in here, and by a socket that they own.
//
// With zones, an address that the agent reaches, or reached a moment ago, is none where a sender leaves anything: see others.
// So what the agent's sockets have left does not go on there, when the agent may not.
func (b *builder) leftover() Chain {
	c := Chain{Name: "leftover"}
	if b.GuardZone {
		b.agents(&c, leave)
	}
	c.add(leave, held)
	c.add(leave, tcp, first)
	c.add(accept)
	return c
}

// reaches are the sets of where a sender is connected.
func (b *builder) reaches(s sender, f Family) []string {
	routed := b.routed[s.For][f]
	return append(routed[:len(routed):len(routed)], f.Kept(s.For).Name)
}

// toSenders has the senders' packets decided, and what their sockets left.
func (b *builder) toSenders(c *Chain) {
	for _, s := range b.senders() {
		c.add(jump(s.chain()), b.sentBy(s)...)
		for _, f := range Families() {
			for _, set := range b.reaches(s, f) {
				c.add(jump("leftover"), of(f), tcp, original, established, inSet(set))
			}
		}
	}
}

// senderZone puts a sender's flows apart from all others, like the guard's: see zone. So is put what sockets that it
// has closed still send. What depends on the policy is in a chain of its own, since rules of zones that change end flows.
func (b *builder) senderZone(s sender) []Chain {
	others := b.others(s)
	c := Chain{Name: s.chain() + "-zone", Hook: "output", Priority: raw}
	c.add(zone(s.zone), b.sentBy(s)...)
	c.add(leave, held)
	c.add(jump(others.Name))
	c.add(zone(s.zone), tcp, first.not())
	return []Chain{others, c}
}

// others is done with what no socket of the sender's can have left, and with all where the agent may have had one, too.
// Both have some to an inspected name. So there, what a socket of the sender's had not sent when it was closed is lost.
func (b *builder) others(s sender) Chain {
	c := Chain{Name: "others"}
	b.agents(&c, accept)
	for _, f := range Families() {
		for _, set := range b.reaches(s, f) {
			c.add(leave, of(f), inSet(set))
		}
	}
	c.add(accept)
	return c
}

// agents does v with what goes to where the agent, or the guard for it, may have a socket.
func (b *builder) agents(c *Chain, v Verdict) {
	for _, f := range Families() {
		for _, set := range b.allowed[f] {
			c.add(v, of(f), inSet(set))
		}
		for _, h := range []Holder{Agent, Gated, Inspected} {
			for _, set := range f.Of(h) {
				c.add(v, of(f), inSet(set.Name))
			}
		}
	}
}

// sendersIn notes what has answered a sender, and lets in what would be denied. The rules behind decide about the rest:
// what is leased to several is noted for each.
func (b *builder) sendersIn(c *Chain, f Family) {
	for _, s := range b.senders() {
		kept := f.Kept(s.For).Name
		for _, set := range []string{kept, f.Leases(s.For).Name} {
			c.add(update(kept, "saddr . l4proto . sport"), of(f), tcp, reply, established, fromSet(set))
		}
		c.add(jump(s.answered), of(f), tcp, reply, established, fromSet(b.deny[f]))
	}
}

// sendersLetIn lets in the rest of what answers the senders.
func (b *builder) sendersLetIn(c *Chain) {
	for _, s := range b.senders() {
		c.add(jump(s.answered), tcp, reply, established)
	}
}
