package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

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
