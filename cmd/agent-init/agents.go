package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"io"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/inspect"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/policy"
)

// about says whether a command is about one agent, where a gateway keeps several.
type about int

const (
	nobody about = iota // it has nothing to do with that
	anyone              // of one, if it is named, and else of the gateway
	one                 // of one, who has to be named
)

// named has the flags be about the agent that is named, and asks for one where that is needed.
func (c command) named(fs *flag.FlagSet) error {
	dir := fs.Lookup("config")
	if state.Selected() != "" && dir != nil {
		its, err := inspect.DirOf(state.Selected(), dir.Value.String())
		return cmp.Or(err, dir.Value.Set(its))
	}
	if c.about != one || state.Selected() != "" {
		return nil // and nothing is read: each of our own processes begins by here
	}
	var s state.State
	var names []string
	switch runs := state.Published(state.StatusFile, &s) == nil; {
	case runs:
		for _, a := range s.Agents {
			names = append(names, a.Name)
		}
	case dir != nil:
		for _, a := range inspect.AgentsIn(dir.Value.String()) {
			names = append(names, a.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fault.New(fault.Usage, "name the agent: agent-init "+c.name+" --agent "+names[0], "this gateway keeps several agents: %s", strings.Join(names, " "))
}

// takeAgent takes the value of --agent.
func (e *environment) takeAgent(name string) error {
	if policy.AgentName(name) != "" {
		return errors.New("give a name with letters from a to z, digits and hyphens")
	}
	e.agent = name
	return nil
}

// naming has what is written for people name the agent in each command that it proposes, where this one was about one.
func (e environment) naming(to io.Writer, hang string, write func(w io.Writer) error) error {
	folded := text.Folded(to, hang)
	if e.agent == "" {
		return write(folded)
	}
	var pairs []string
	for _, c := range commands() {
		if with := "agent-init " + c.name + " --agent"; c.about != nobody {
			pairs = append(pairs, with, with, "agent-init "+c.name, with+" "+e.agent) // the first that fits
		}
	}
	var said bytes.Buffer
	within := io.Writer(&said)
	if width := text.WidthOf(folded); width > 0 { // before the names are in: a command is copied, not read
		within = text.FoldedAt(&said, width, hang)
	}
	err := write(within)
	_, failed := strings.NewReplacer(pairs...).WriteString(to, said.String())
	return cmp.Or(err, failed)
}
