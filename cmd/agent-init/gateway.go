package main

import (
	"context"
	"encoding/json"
	"flag"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/keeper"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/policy"
)

func gatewayCommand() command {
	return gatewayNamed("gateway", "confine the agents of another network, as its only way out; in the foreground")
}

const cellName = "__cell"

// cellCommand is the keeper of one agent of several.
func cellCommand() command {
	return gatewayNamed(cellName, "keeps one agent of a gateway (started by agent-init itself)")
}

func gatewayNamed(name, summary string) command {
	var s settings
	var cell string
	return command{
		name: name, signals: true, synopsis: "--inside IFACE|CIDR [flags]",
		summary: summary,
		example: "agent-init gateway --inside 172.30.5.0/24",
		flags: func(fs *flag.FlagSet) {
			s.guardInside(fs)
			if name == cellName {
				fs.StringVar(&cell, "cell", "", "`WHAT` its keeper is told, as JSON")
			}
		},
		run: func(ctx context.Context, e environment, args []string) error {
			if len(args) > 0 {
				return fault.New(fault.Usage, "start the agents in containers of their own", "gateway runs no command, and %q was given", args[0])
			}
			c, err := s.read(e)
			if err != nil {
				return err
			}
			if len(s.inside.items) == 0 {
				return fault.New(fault.Usage, "agent-init gateway --inside 172.30.5.0/24", "gateway: say by --inside where the agents are")
			}
			if c.Backend != "auto" && c.Backend != "nftables" {
				return fault.New(fault.Usage, "leave --backend out", "a gateway needs the backend nftables, and --backend %s was given", c.Backend)
			}
			if !slices.Contains(keeper.AnswerWords(), s.answer) {
				return fault.New(fault.Usage, "use one of: "+strings.Join(keeper.AnswerWords(), " "), "--answer %q is not known", s.answer)
			}
			c.Gateway = &keeper.Gateway{Inside: s.inside.items, Answer: s.answer, Env: e.env, Again: func(cell keeper.Cell) []string {
				told, _ := json.Marshal(cell) // of numbers and texts
				return slices.Concat([]string{"agent-init", cellName, "--cell", string(told)}, e.args[1:])
			}}
			if cell == "" {
				return keeper.Keep(ctx, c, "gateway", nil)
			}
			c.Cell = new(keeper.Cell)
			if err := json.Unmarshal([]byte(cell), c.Cell); err != nil || policy.AgentName(c.Cell.Name) != "" {
				return fault.New(fault.Usage, "use agent-init gateway", "a cell is started by agent-init itself")
			}
			state.Select(c.Cell.Name)
			c.PolicyDir = filepath.Join(c.PolicyDir, state.AgentsDir, c.Cell.Dir)
			c.SavedFile, c.PhaseFile, c.EnvFile = state.SavedFile(), state.PhaseFile(), strings.ReplaceAll(c.EnvFile, "{agent}", c.Cell.Name)
			return keeper.Keep(ctx, c, "gateway", nil)
		},
	}
}

// guardInside has those of gateway, which starts no agent, and lets nobody in to one.
func (s *settings) guardInside(fs *flag.FlagSet) {
	s.guard(fs)
	fs.StringVar(&s.User, "user", "auto", "`USER` that the self-test is made as, of a gateway with one policy: NAME, UID or UID:GID; auto takes the image's agent user")
	fs.StringVar(&s.Backend, "backend", "auto", "packet filter `BACKEND`: nftables, or auto, which is the same here")
	s.inside = newGiven("inside")
	fs.StringVar(&s.answer, "answer", "real", "`WHAT` names are answered with: real addresses, for agents whose route this is; or own, for agents without a route")
	fs.Var(&s.inside, "inside", "interface or network that the agents are on, as `IFACE|CIDR`; may be given more than once, for both families of one interface")
}

// gatewaySettings are the flags of gateway.
func gatewaySettings() *flag.FlagSet {
	fs := flag.NewFlagSet("gateway", flag.ContinueOnError)
	new(settings).guardInside(fs)
	return fs
}
