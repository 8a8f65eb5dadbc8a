package plan

import "errors"

// A gateway may keep several agents, each by a table of its own, with a keeper, a guard and a broker of its own: a cell.
// What is not of a cell passes its table by the first rules of each chain. What is, is marked by the table and judged by
// it, so that a mark means that this table has let the packet pass. The table of all agents, which looks last, lets
// nothing pass without the mark of the one agent that the packet is of: see agents.go. So a cell without a table is
// sealed, and a table without a cell vouches for nobody.

// Cell is what a plan about one of several agents has besides. The zero value is none.
type Cell struct {
	Mark uint32 // of the packets that it has let pass; no other cell has it, and none that there was
}

func (c Config) isCell() bool { return c.Cell.Mark != 0 }

func (c Config) checkCell() error {
	switch {
	case !c.isCell():
		return nil
	case !c.isGateway():
		return errors.New("a cell needs the interface of its agent")
	case c.AgentUID == 0:
		return errors.New("a cell needs a uid of its own for what it tries as the agent, not 0")
	case c.AgentUID == c.GuardUID || c.AgentUID == c.BrokerUID:
		return errors.New("a cell needs another uid for what it tries as the agent than the guard's and the broker's")
	}
	return nil
}

func setMark(m uint32) Verdict   { return Verdict{Do: "meta mark set", M: m} } // and go on
func setCtMark(m uint32) Verdict { return Verdict{Do: "ct mark set", M: m} }   // of the packet's flow; and go on
func marked(m uint32) Match      { return is("ct mark", m) }                   // by setCtMark

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
			own.add(setCtMark(b.Cell.Mark))
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
	agents := func(more ...func(n int) Match) {
		for i := range b.Inside.Networks {
			var ms []Match
			for _, m := range more {
				ms = append(ms, m(i))
			}
			out = append(out, ms)
		}
	}
	sent := func(i int) Match { return from(b.Inside.Networks[i]) }
	sentTo := func(i int) Match { return dst(b.Inside.Networks[i]) }
	arrives := func(int) Match { return b.inside() }
	leaves := func(int) Match { return oif(b.Inside.Link) }
	switch chain {
	case "output":
		out = append(out, []Match{uid(b.GuardUID)}, []Match{uid(b.AgentUID)})
		if b.hasBroker() {
			out = append(out, []Match{uid(b.BrokerUID)})
		}
		agents(sentTo)
		out = append(out, []Match{marked(b.Cell.Mark)}) // what sockets that are closed have left, and errors about it
		if b.engine() {                                 // what the engine's DNS server asks for the guard: see forwarded
			for _, id := range b.engineUIDs() {
				out = append(out, []Match{uid(id), udp, dport(53), staying.not(), {Field: "@th,64,16", Set: askedSet.Name}})
			}
		}
	case "input":
		agents(arrives, sent)
		out = append(out, []Match{marked(b.Cell.Mark)})
	case "forward":
		agents(arrives, sent)
		agents(leaves, sentTo)
	case "to-guard":
		out = append(out, []Match{uid(b.AgentUID)})
	}
	return out
}
