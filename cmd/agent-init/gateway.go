package main

import (
	"context"
	"flag"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/keeper"
)

func gatewayCommand() command {
	var s settings
	return command{
		name: "gateway", signals: true, synopsis: "--inside IFACE|CIDR [flags]",
		takes:   "no command: start the agents in containers of their own",
		summary: "confine the agents of another network, as its only way out; in the foreground",
		example: "agent-init gateway --inside 172.30.5.0/24",
		flags:   s.guardInside,
		run: func(ctx context.Context, e environment, _ []string) error {
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
			c.Gateway = &keeper.Gateway{Inside: s.inside.items, Answer: s.answer}
			return keeper.Keep(ctx, c, "gateway", nil)
		},
	}
}

// guardInside has those of gateway, which starts no agent, and lets nobody in to one.
func (s *settings) guardInside(fs *flag.FlagSet) {
	s.guard(fs)
	fs.StringVar(&s.User, "user", "auto", "`USER` that the self-test is made as: NAME, UID or UID:GID; auto takes the image's agent user")
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
