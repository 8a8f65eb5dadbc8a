package keeper

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/ids"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/privdrop"
)

// several keeps the agents of a gateway apart. Each has a keeper of its own, with a guard, a broker, rules, a log and a
// directory: a cell, which knows of no other. This process reads nothing that comes from any of them. It holds the one
// table that says who they are, and lets pass of each what its cell has marked.
//
// Locks are taken in this order: changing, mu, publisher.mu.
type several struct {
	*base
	fw     *firewall.Firewall
	table  firewall.Agents // but for the list
	uids   []uint32        // uidsOfCell for each slot
	loaded watched

	changing sync.Mutex // one change of the list at a time
	doors    *net.UnixListener

	mu    sync.Mutex // held while the table is applied: what is in force is what cells says
	cells map[string]*cell
	next  uint32 // mark; none is used twice
	owed  bool   // the table could not be applied: tried again
	seen  map[netip.Addr]bool
}

// keepSeveral is Keep of several agents.
func keepSeveral(ctx context.Context, c Config) error {
	log, _ := c.logger(os.Stderr)
	b, err := newBase(c, "gateway", log)
	if err != nil {
		return err
	}
	defer b.close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	g := &several{base: b, cells: map[string]*cell{}, seen: map[netip.Addr]bool{}}
	go heed(stop, func() {
		if g.ready() {
			_ = g.reload(context.WithoutCancel(ctx)) // its error is in the log and the status
		}
	})
	b.progress = NewProgress(c, os.Stderr)
	if err := g.begin(ctx); err != nil {
		g.end()
		if ended := endedBy(ctx); ended != 0 {
			return fault.Status(128 + int(ended))
		}
		return err
	}
	g.serve(ctx)
	g.end()
	g.update(func(s *state.State) {
		s.Phase, s.Reason = state.PhaseEnded, "the keeper was told to end; the agents are sealed"
	})
	g.publish()
	return nil
}

// begin runs the steps of the start. Until the last one, nobody passes anything.
func (g *several) begin(ctx context.Context) error {
	s := &starting{base: g.base, ctx: ctx}
	fits := then(s, "check the container", "check the container", func(context.Context, struct{}) (fit, error) {
		if err := g.checkRoot(); err != nil {
			return fit{}, err
		}
		if err := g.requireAll(append([]int{unix.CAP_NET_ADMIN}, privdrop.ExecCapabilities...)); err != nil {
			return fit{}, err
		}
		return fit{}, g.checkAround()
	}, struct{}{})
	safe := then(s, "find who could replace agent-init", "check the container", g.checkProgramPath, fits)
	shut := then(s, "seal the network", "seal the network", g.seal, safe)
	list := then(s, "read the policy", "read the policy", g.open, shut)
	then(s, "apply the rules", "apply the rules", g.apply, list)
	then(s, "start the agents' keepers", "start the keepers", func(ctx context.Context, _ struct{}) (struct{}, error) { return struct{}{}, g.await(ctx) }, struct{}{})
	if s.err != nil {
		return s.err
	}
	g.update(func(s *state.State) { s.Phase = state.PhaseReady })
	g.publish()
	g.progress.done("confined, in all")
	return nil
}

// open makes the runtime directory and the log, and reads who the agents are.
func (g *several) open(ctx context.Context, s sealed) ([]policy.Agent, error) {
	g.fw = s.fw
	if err := g.takeDir(); err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(string(g.dir), state.AgentsDir), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	g.takeSaved() // which those of the agents are below
	p, err := g.read()
	var o audit.Options
	if err == nil {
		log := p.Settings.Log
		if o.MaxSize, o.Files = log.MaxSize, log.Files; log.Stdout {
			o.Mirror = os.Stdout
		}
	}
	end, e := g.openLog(o)
	if e != nil {
		return nil, e
	}
	g.atEnd(end)
	if err != nil {
		return nil, err
	}
	if g.doors, err = control.Listen(filepath.Join(string(g.dir), ask.ControlSocket), 0o600); err != nil {
		return nil, fault.New(fault.Rules, "mount a tmpfs at /run", "%w", err)
	}
	g.atEnd(func() error {
		if err := g.doors.Close(); !errors.Is(err, net.ErrClosed) { // serving ends it as well
			return err
		}
		return nil
	})
	if g.uids, err = ids.ChooseUIDs("the parts of the agents", firewall.SocketOwners, uidsOfCell*policy.MaxAgents); err != nil {
		return nil, err
	}
	var b [4]byte
	rand.Read(b[:])
	g.next = binary.NativeEndian.Uint32(b[:]) &^ 1
	return p.Settings.Agents, g.giveUp(keeperCaps)
}

// read reads who the agents are.
func (g *several) read() (*policy.Policy, error) {
	g.loaded.loaded = g.filesState()
	p, phases, err := g.parse()
	switch {
	case err != nil:
		return nil, err
	case len(p.Settings.Agents) == 0:
		return nil, fault.New(fault.Policy, "put the agents back, or start the gateway again for one policy", "the policy lists no agents any more")
	case phases:
		return nil, fault.New(fault.Policy, "move them into the directory of an agent: docs/phases.md", "there are phases beside agents, which are nobody's")
	}
	return p, nil
}

// parse reads the policy that may list agents. Phases are of a policy that does not.
func (g *several) parse() (p *policy.Policy, phases bool, err error) {
	files, err := g.readFiles()
	if err != nil {
		return nil, false, container.ReadFault(err)
	}
	if p, err = policy.Parse(files, allowlist.Files); err != nil {
		return nil, false, fault.New(fault.Policy, "see agent-init check, and correct the entries", "the policy has errors\n%w", err)
	}
	said, err := policy.ReadPhase(g.config.PolicyDir)
	return p, files.Phases != nil || said != "" || err != nil, nil
}

// agentsIn says whether a policy lists agents. What is wrong with it is said by who reads it next.
func agentsIn(c Config) bool {
	p, _, err := (&several{base: &base{config: c, mode: "gateway"}}).parse()
	return err == nil && len(p.Settings.Agents) > 0
}

// place finds where an agent is.
func (g *several) place(a policy.Agent) (*inside, error) {
	links, err := linksHere()
	if err != nil {
		return nil, err
	}
	in, err := insideFor(links, g.config.Gateway.Inside, a.Networks)
	if err != nil {
		return nil, fault.New(fault.Usage, "correct --inside, or agents in policy.yaml", "agent %s: %w; there are %s", a.Name, err, described(links))
	}
	outs, err := firewall.WaysOut()
	if err != nil {
		return nil, err
	}
	return in, g.wayFrom(in, outs)
}

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
	used := map[uint16]bool{}
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

// await waits until each keeper has confined its agent, or has failed to: one that fails holds up no other.
func (g *several) await(ctx context.Context) error {
	for {
		settled := true
		g.mu.Lock()
		for _, c := range g.cells {
			settled = settled && c.settled()
		}
		g.mu.Unlock()
		if settled {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// serve keeps the agents until ctx ends.
func (g *several) serve(ctx context.Context) {
	go func() {
		s := control.Server{May: func(uid uint32) bool { return uid == 0 }, Handle: g.answer, Log: g.log}
		if err := s.Serve(ctx, g.doors); err != nil {
			g.log.Error("nobody can have the agents read again any more", "error", err)
		}
	}()
	changed, err := g.fw.Watch(ctx)
	if err != nil {
		g.log.Warn("rule changes are noticed by the clock only", "error", err)
	}
	tick, again := time.Tick(time.Second), time.Tick(state.AttestEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			if g.overdue() {
				g.attest(ctx)
			}
			if g.loaded.due(g.filesState()) {
				_ = g.reload(ctx) // its error is in the log and the status
			}
		case <-again:
			g.attest(ctx)
			g.notice(ctx)
			g.audit.Retry()
			g.publish()
		case _, ok := <-changed:
			if !ok {
				changed = nil
				continue
			}
			g.attest(ctx)
			g.publish()
		}
	}
}

// answer does what is asked of all agents. All else is about one of them.
func (g *several) answer(ctx context.Context, _ control.Peer, r control.Request) control.Reply {
	if r.Verb != ask.Reload {
		return ask.Refuse(fault.Usage, "name the agent: --agent NAME; agent-init status lists them", "this gateway keeps several agents")
	}
	ctx = context.WithoutCancel(ctx)
	if err := g.reload(ctx); err != nil {
		reply := ask.RefuseWith(err)
		reply.Error = "the list of agents was not reloaded, the old one stays in force: " + reply.Error
		return reply
	}
	if err := cmp.Or(g.reloadAll(ctx, r), g.settle(ctx)); err != nil {
		return ask.RefuseWith(err)
	}
	return control.Reply{OK: true}
}

// settle waits until the keepers that have just begun have confined their agents, but not for long.
func (g *several) settle(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := g.await(bounded); err != nil {
		return fault.New(fault.Failure, "see agent-init status", "an agent's keeper is still starting")
	}
	return nil
}

// reloadAll has each agent's keeper read its policy again. One that is starting reads it anyway.
func (g *several) reloadAll(ctx context.Context, r control.Request) error {
	g.mu.Lock()
	names := slices.Sorted(maps.Keys(g.cells))
	names = slices.DeleteFunc(names, func(name string) bool { return !g.cells[name].serves() })
	g.mu.Unlock()
	failed := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			reply, err := control.Call(bounded, filepath.Join(string(g.dir.OfAgent(name)), ask.ControlSocket), r)
			if err == nil && !reply.OK {
				err = errors.New(reply.Error)
			}
			if err != nil {
				failed[i] = fmt.Errorf("agent %s: %w", name, err)
			}
		})
	}
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		return fault.New(fault.Policy, "see agent-init check, and agent-init status", "%w", err)
	}
	return nil
}

// reload takes over a changed list of agents. What is wrong with it leaves the old one in force, whole.
func (g *several) reload(ctx context.Context) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	err := g.take(ctx)
	g.update(func(s *state.State) {
		if s.Policy.Fault = ""; err != nil {
			s.Policy.Fault = err.Error()
		}
	})
	if err != nil {
		g.log.Error("the list of agents was not reloaded; the old one stays", "error", err)
		g.record(audit.Event{Kind: audit.Policy, Verdict: audit.Fault, Reason: "reload failed, the old list of agents stays: " + text.InOneLine(err)})
	}
	g.publish()
	return err
}

func (g *several) take(ctx context.Context) error {
	p, err := g.read()
	if err != nil {
		return err
	}
	var in, out []*cell
	kept := map[string]bool{}
	for _, a := range p.Settings.Agents {
		g.mu.Lock()
		was := g.cells[a.Name]
		g.mu.Unlock()
		if was != nil && was.agent.MAC == a.MAC && was.agent.Dir() == a.Dir() && slices.Equal(was.agent.Networks, a.Networks) {
			kept[a.Name] = true
			continue
		}
		c := &cell{several: g, agent: a}
		if c.in, err = g.place(a); err != nil {
			return err
		}
		if !slices.Contains(g.table.Links, uint32(c.in.link)) || c.in.shared != g.table.Shared {
			return fault.New(fault.Usage, "start the gateway again", "agent %s is behind an interface that the gateway was not started with", a.Name)
		}
		in = append(in, c)
	}
	g.mu.Lock()
	for name, c := range g.cells {
		if !kept[name] {
			out = append(out, c)
		}
	}
	g.mu.Unlock()
	if len(in)+len(out) == 0 {
		return nil
	}
	failed := g.change(ctx, nil, out) // those that are out pass nothing from here on; or without their own rules
	for _, c := range out {
		c.end()
		g.guardian(audit.Info, "agent "+c.agent.Name+" is no longer kept")
	}
	if err := cmp.Or(failed, g.change(ctx, in, nil)); err != nil {
		return err
	}
	for _, c := range in {
		c.begin()
		g.guardian(audit.Info, "agent "+c.agent.Name+" is kept")
	}
	return nil
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

// end seals all agents, and ends their keepers.
func (g *several) end() {
	g.mu.Lock()
	all := slices.Collect(maps.Values(g.cells))
	g.mu.Unlock()
	if len(all) == 0 {
		return
	}
	if err := g.change(context.Background(), nil, all); err != nil { // without their rules, which go next, nothing passes either
		g.log.Error("sealing the agents", "error", err)
	}
	var ends sync.WaitGroup
	for _, c := range all {
		ends.Go(c.end)
	}
	ends.Wait()
}
