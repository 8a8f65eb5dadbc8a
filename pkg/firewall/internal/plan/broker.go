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

func (c Config) hasBroker() bool { return c.BrokerUID != 0 }

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

// brokerOwned matches what the broker sends: see guardOwned.
func (c Config) brokerOwned() []Match {
	if c.AnyGroup {
		return []Match{uid(c.BrokerUID)}
	}
	return []Match{uid(c.BrokerUID), gid(c.BrokerGID)}
}

// addBroker adds the broker's sets, and the chains that decide what it sends, what it leaves to be sent, and what answers.
func (b *builder) addBroker() error {
	boxes, err := boxesOf(b.BrokerAllow, false)
	if err != nil {
		return fmt.Errorf("allow the broker: %w", err)
	}
	denied, err := boxesOf(b.BrokerDeny, true)
	if err != nil {
		return fmt.Errorf("deny the broker: %w", err)
	}
	c := Chain{Name: "broker"}
	for _, l := range b.listener() {
		c.add(accept, staying, reply, established, src(l.Addr()), tcp, sport(l.Port()))
	}
	for _, l := range b.Inside.Broker {
		c.add(accept, reply, established, src(l.Addr()), tcp, sport(l.Port()))
	}
	for _, p := range b.Inside.Networks {
		c.refuse(dst(p))
	}
	c.refuse(staying)
	c.refuse(tcp, dport(53))
	in := Chain{Name: "answered"}
	for _, f := range Families() {
		leased, kept := f.Leases(Broker), f.Kept(Broker)
		b.brokered[f] = b.static("route", f, boxes)
		b.plan.Sets = append(b.plan.Sets, leased, kept)
		c.refuse(of(f), inSet(b.static("deny", f, append(never(), denied...))[0])) // of either family there is one
		c.add(accept, of(f), tcp, original, established, inSet(kept.Name))
		for _, s := range append(b.brokered[f], leased.Name) {
			c.add(accept, of(f), tcp, original, inSet(s))
		}
		for _, s := range append(b.brokered[f], kept.Name, leased.Name) {
			in.add(accept, of(f), fromSet(s))
		}
	}
	c.refuse()
	b.plan.Chains = append(b.plan.Chains, c, in)
	return nil
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

// leftover decides what is sent to where the broker or the guard is connected, in a flow that it began. Sockets that it
// has closed have no owner, and still send what it had written, and the end. Others who send there may be in such a flow
// by using its port again; but they begin anew, by a segment that is not let in here, and by a socket that they own.
func leftover() Chain {
	c := Chain{Name: "leftover"}
	c.add(leave, held)
	c.add(leave, tcp, first)
	c.add(accept)
	return c
}

// toBroker has the broker's packets decided, and what its sockets left.
func (b *builder) toBroker(c *Chain) {
	if !b.hasBroker() {
		return
	}
	c.add(jump("broker"), b.brokerOwned()...)
	for _, f := range Families() {
		for _, s := range append(b.brokered[f], f.Kept(Broker).Name) {
			c.add(jump("leftover"), of(f), tcp, original, established, inSet(s))
		}
	}
}

// brokerZone puts the broker's flows apart from all others, like the guard's: see zone. So is put what sockets that it
// has closed still send. What depends on the policy is in a chain of its own, since rules of zones that change end flows.
func (b *builder) brokerZone() []Chain {
	const its = 8 // any number that is no other zone's
	c := Chain{Name: "broker-zone", Hook: "output", Priority: raw}
	c.add(zone(its), b.brokerOwned()...)
	c.add(leave, held)
	c.add(jump("others"))
	c.add(zone(its), tcp, first.not())
	return []Chain{b.others(), c}
}

// others is done with what no socket of the broker's can have left, and with all where the agent may have had one, too.
// Both have some to an inspected name. So there, what a socket of the broker's had not sent when it was closed is lost.
func (b *builder) others() Chain {
	c := Chain{Name: "others"}
	for _, f := range Families() {
		for _, s := range b.allowed[f] {
			c.add(accept, of(f), inSet(s))
		}
		for _, h := range []Holder{Agent, Gated, Inspected} {
			for _, s := range f.Of(h) {
				c.add(accept, of(f), inSet(s.Name))
			}
		}
		for _, s := range append(b.brokered[f], f.Kept(Broker).Name) {
			c.add(leave, of(f), inSet(s))
		}
	}
	c.add(accept)
	return c
}

// brokerIn notes what has answered the broker, and lets in what would be denied. The rules behind decide about the rest:
// what is leased to both is noted for both.
func (b *builder) brokerIn(c *Chain, f Family) {
	if !b.hasBroker() {
		return
	}
	kept := f.Kept(Broker).Name
	for _, s := range []string{kept, f.Leases(Broker).Name} {
		c.add(update(kept, "saddr . l4proto . sport"), of(f), tcp, reply, established, fromSet(s))
	}
	c.add(jump("answered"), of(f), tcp, reply, established, fromSet(b.deny[f]))
}

// brokerLetIn lets in the rest of what answers the broker.
func (b *builder) brokerLetIn(c *Chain) {
	if b.hasBroker() {
		c.add(jump("answered"), tcp, reply, established)
	}
}
