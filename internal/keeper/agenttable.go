package keeper

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

// apply brings the table of all agents into force, and starts their keepers.
func (g *several) apply(ctx context.Context, list []policy.Agent) (struct{}, error) {
	var none struct{}
	links, err := linksHere()
	if err != nil {
		return none, err
	}
	for _, word := range g.config.Gateway.Inside {
		l, _, err := network(links, word)
		if err != nil {
			return none, fault.New(fault.Usage, "name the agents' interface or network: agent-init gateway --inside 172.30.5.0/24", "--inside: %w; there are %s", err, described(links))
		}
		if i := uint32(l.index); !slices.Contains(g.table.Links, i) {
			g.table.Links = append(g.table.Links, i)
		}
	}
	var fresh []*cell
	var caveats []string
	for _, a := range list {
		in, err := g.place(a)
		if err != nil {
			return none, err
		}
		if caveats, err = forwardable(in); err != nil {
			return none, err
		}
		g.table.Onward, g.table.Shared = g.table.Onward || in.onward, g.table.Shared || in.shared
		fresh = append(fresh, &cell{several: g, agent: a, in: in})
	}
	if err := g.change(ctx, fresh, nil); err != nil {
		return none, err
	}
	g.update(func(s *state.State) { s.Firewall.Caveats = caveats })
	for _, c := range fresh {
		if err := c.in.forward(); err != nil {
			return none, err
		}
		c.begin()
	}
	return none, nil
}

// change takes cells in and out. When it returns without an error, those that are out pass nothing, and those that are in
// what their tables mark.
func (g *several) change(ctx context.Context, in, out []*cell) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := maps.Clone(g.cells)
	for _, c := range out {
		delete(g.cells, c.agent.Name)
		c.mark = 0
	}
	used := maps.Clone(g.lost)
	for _, c := range before { // a cell that is ending has its slot
		used[c.slot] = true
	}
	for _, c := range in {
		for c.slot = 0; used[c.slot]; c.slot++ {
		}
		if used[c.slot] = true; (int(c.slot)+1)*uidsOfCell > len(g.uids) {
			g.cells = before
			return fault.New(fault.Policy, "take fewer agents out and in at once", "no place is left for agent %s", c.agent.Name)
		}
		c.mark = g.newMark()
		g.cells[c.agent.Name] = c
	}
	err := g.put(ctx)
	if err == nil {
		err = firewall.Unpin(placesOf(out))
	}
	if err == nil {
		err = firewall.Pin(placesOf(in))
	}
	if err != nil {
		for _, c := range in {
			delete(g.cells, c.agent.Name)
		}
		return fault.New(fault.Rules, kernelRemedy, "apply the rules: %w", err)
	}
	return nil
}

// newMark is one that no cell has had. Whatever rules an earlier one has left vouch for nobody. mu is held.
func (g *several) newMark() uint32 {
	for g.next += 2; g.next == 0; g.next += 2 {
	}
	return g.next
}

func placesOf(cells []*cell) (out []firewall.AgentAt) {
	for _, c := range cells {
		out = append(out, c.place())
	}
	return out
}

// put applies the table of all agents. mu is held.
func (g *several) put(ctx context.Context) error {
	t := g.table
	for _, name := range slices.Sorted(maps.Keys(g.cells)) {
		t.List = append(t.List, g.cells[name].place())
	}
	plan, err := firewall.NewAgentsPlan(t)
	if err != nil {
		return err
	}
	g.tell()
	err = g.fw.Apply(ctx, plan, nil)
	g.owed = err != nil
	return err
}

// tell has the status say who there is. mu is held.
func (g *several) tell() {
	list := []state.Agent{}
	for _, name := range slices.Sorted(maps.Keys(g.cells)) {
		c := g.cells[name]
		a := state.Agent{Name: name, Networks: c.agent.Networks, MAC: c.agent.MAC, Restarts: c.restarts, Fault: c.fault}
		if c.proc != nil {
			a.Keeper = c.proc.Pid()
		}
		list = append(list, a)
	}
	g.update(func(s *state.State) { s.Agents = list })
}

// attest compares the live rules with the plan, and mends a difference.
func (g *several) attest(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.owed {
		if err := g.put(ctx); err != nil {
			g.log.Error("applying the rules", "error", err)
		}
	}
	err := g.fw.Verify(ctx)
	if err != nil && ctx.Err() == nil {
		g.log.Error("the live rules differ from the plan", "difference", err)
		g.guardian(audit.Fault, "rules changed by somebody else: "+err.Error())
		g.update(func(s *state.State) { s.Firewall.Repairs++ })
		if err = g.fw.Repair(ctx); err == nil {
			err = g.fw.Verify(ctx)
		}
	}
	g.update(func(s *state.State) {
		if s.Firewall.Fault = ""; err != nil {
			s.Firewall.Fault = err.Error()
			return
		}
		s.Firewall.Verified = time.Now()
	})
}

func (g *several) overdue() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.owed
}

// mostNoticed bounds what is recorded of those who are no agents, at each look.
const mostNoticed = 20

// notice records from which addresses somebody sent who is no agent.
func (g *several) notice(ctx context.Context) {
	now, err := g.fw.Seen(ctx)
	if err != nil {
		g.log.Warn("looking for who is no agent", "error", err)
		return
	}
	still, said := map[netip.Addr]bool{}, 0
	look := func(list []netip.Addr, why string) {
		for _, a := range list {
			fresh := !g.seen[a]
			if fresh && said == mostNoticed {
				continue // it is said at the next look
			}
			if still[a] = true; fresh {
				said++
				g.record(audit.Event{Kind: audit.Drop, Verdict: audit.Deny, IP: a.String(), Reason: why})
			}
		}
	}
	look(now.Strangers, "sent from an address that is no agent's")
	look(now.Forged, "sent from an agent's address, and not by it")
	g.seen = still
	g.update(func(s *state.State) {
		if s.Nobody = nil; len(now.Strangers)+len(now.Forged) > 0 {
			s.Nobody = &state.Nobody{Strangers: now.Strangers, Forged: now.Forged}
		}
	})
}
