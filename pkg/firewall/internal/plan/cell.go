package plan

import (
	"errors"
	"net/netip"
	"slices"
)

// A gateway may keep several agents, each by a table of its own, with a keeper, a guard and a broker of its own: a cell.
// The table of all agents looks first, and marks whose a packet is. The table of a cell judges the packets with its tag,
// and no others, which pass it by one rule: there may be hundreds of tables. It marks what it judges anew, so that this
// mark means that the table has let the packet pass. The table of all agents, which also looks last, lets nothing pass
// without the mark of the one agent that the packet is of: see agents.go. So a cell without a table is sealed, and a
// table without a cell vouches for nobody.

// Cell is what a plan about one of several agents has besides. The zero value is none.
type Cell struct {
	Mark uint32 // of the packets that it has let pass, even; no other cell has it, and none that there was
}

func (c Config) isCell() bool { return c.Cell.Mark != 0 }

func (c Config) checkCell() error {
	switch {
	case !c.isCell():
		return nil
	case c.Cell.Mark&1 != 0:
		return errors.New("a cell's mark is even")
	case !c.isGateway():
		return errors.New("a cell needs the interface of its agent")
	case c.AgentUID == 0:
		return errors.New("a cell needs a uid of its own for what it tries as the agent, not 0")
	case c.AgentUID == c.GuardUID || c.AgentUID == c.BrokerUID || c.AgentUID == c.ExporterUID:
		return errors.New("a cell needs another uid for what it tries as the agent than those of the guard and of who sends")
	}
	return nil
}

// tag is the mark of what the cell with the mark m is to judge.
func tag(m uint32) uint32 { return m | 1 }

// enclose has the chains of a cell that judge all packets judge those of the cell.
func (b *builder) enclose() {
	for i, c := range b.plan.Chains {
		whose := b.whose(c.Name)
		if whose == nil {
			continue
		}
		first := Chain{Name: c.Name, Hook: c.Hook, Nat: c.Nat, Priority: c.Priority}
		own := Chain{Name: "own-" + c.Name}
		if !c.Nat {
			own.add(setMark(b.Cell.Mark))
		}
		if c.Name == "output" { // by which what comes back is known
			own.add(setCtMark(tag(b.Cell.Mark)))
		}
		own.Rules = append(own.Rules, c.Rules...)
		if c.Closed {
			own.add(drop)
		}
		for _, ms := range whose {
			first.add(jump(own.Name), ms...)
		}
		b.plan.Chains[i] = first
		b.plan.Chains = append(b.plan.Chains, own)
	}
}

// whose are the packets of the cell in a chain, by what each fits; nil: the chain has told them by itself.
func (b *builder) whose(chain string) (out [][]Match) {
	switch chain {
	case "input", "forward":
		out = append(out, b.tagged())
	case "output":
		out = append(out, b.tagged())
		if b.engine() { // what the engine's DNS server asks for the guard: see forwarded
			for _, id := range b.engineUIDs() {
				out = append(out, []Match{uid(id), udp, dport(53), staying.not(), {Field: "@th,64,16", Set: askedSet.Name}})
			}
		}
	case "to-guard":
		out = append(out, []Match{uid(b.AgentUID)})
	}
	return out
}

// stayHome keeps a cell's processes to what answers for their own agent, by address and port: another's may have the same
// port at another address. What answers for another, in the same namespace, can't tell them from its own.
func (b *builder) stayHome(c *Chain) {
	if !b.isCell() {
		return
	}
	home4, home6 := netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()
	admit := func(l netip.AddrPort, protos ...Match) {
		for _, proto := range protos {
			if l.Port() != 0 {
				c.add(accept, staying, original, dst(single(l.Addr())), proto, dport(l.Port()))
			}
		}
	}
	for _, l := range append(slices.Clip(b.Inside.DNS), netip.AddrPortFrom(home4, b.DNSPort4), netip.AddrPortFrom(home6, b.DNSPort6)) {
		admit(l, ported()...)
	}
	for _, l := range append(slices.Concat(b.Inside.Gate, b.Inside.Broker), netip.AddrPortFrom(home4, b.GatePort4), netip.AddrPortFrom(home6, b.GatePort6),
		netip.AddrPortFrom(home4, b.BrokerPort4), netip.AddrPortFrom(home6, b.BrokerPort6)) {
		admit(l, tcp)
	}
	c.refuse(staying, original)
}

// tagged are the packets that the table of all agents says are of the cell.
func (b *builder) tagged() []Match { return []Match{is("meta mark", tag(b.Cell.Mark))} }
