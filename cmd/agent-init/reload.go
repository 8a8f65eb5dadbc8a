package main

import (
	"context"
	"flag"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/control"
)

func reloadCommand() command {
	return command{
		name: "reload", alone: true, summary: "read the policy again; a bad one leaves the old one in force",
		example: "agent-init reload",
		run: func(ctx context.Context, _ environment, _ *flag.FlagSet, _ []string) error {
			return reload(ctx)
		},
	}
}

// reload has the keeper read the policy again, and waits for what comes of it. It
// asks over root's socket, not with a signal: a keeper that nohup(1) started ignores
// HUP, so that what it starts does.
func reload(ctx context.Context) error {
	return call(ctx, state.ControlSocket, control.Request{Verb: state.VerbReload}, nil)
}
