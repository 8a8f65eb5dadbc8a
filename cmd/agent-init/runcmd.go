package main

import (
	"context"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/guard"
	"github.com/agent-init/agent-init/internal/keeper"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/window/server"
)

func runCommand() command {
	var s settings
	return command{
		name: "run", takesSignals: true, synopsis: "[flags] [-- CMD ARG…]",
		summary: "confine the container, prove it, and run the agent",
		example: "agent-init run -- claude",
		flags:   s.supervise,
		run: func(ctx context.Context, e environment, args []string) error {
			c, err := s.read(e)
			if err != nil {
				return err
			}
			return keeper.Run(ctx, c, e.stdin, e.stderr, args)
		},
	}
}

func sidecarCommand() command {
	var s settings
	return command{
		name: "sidecar", takesSignals: true, synopsis: "[flags]",
		summary: "confine a network namespace that the agent's container shares; stays in the foreground",
		example: "agent-init sidecar --user 1000",
		flags:   s.confine,
		run: func(ctx context.Context, e environment, args []string) error {
			if len(args) > 0 {
				return fault.New(fault.Usage, "start the agent in its own container", "sidecar runs no command, and %q was given", args[0])
			}
			c, err := s.read(e)
			if err != nil {
				return err
			}
			return keeper.Keep(ctx, c, "sidecar", nil)
		},
	}
}

// The processes that agent-init starts of itself.

func guardCommand() command {
	return command{
		name:    "guard",
		summary: "the part that reads the network, without a privilege (started by agent-init itself)",
		run:     func(ctx context.Context, _ environment, _ []string) error { return guard.Run(ctx) },
	}
}

func stageCommand() command {
	return command{
		name:    stage.Name,
		summary: "drops every privilege and executes a command (started by agent-init itself)",
		run:     func(context.Context, environment, []string) error { return stage.Run() },
	}
}

func sessionsServerCommand() command {
	return command{
		name:    stage.SessionsName,
		summary: "keeps the terminals of a session (started by agent-init itself)",
		run:     func(ctx context.Context, _ environment, _ []string) error { return server.Run(ctx) },
	}
}
