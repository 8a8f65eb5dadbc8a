package main

import (
	"context"
	"flag"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/window/server"
)

func sessionsServerCommand() command {
	return command{
		name: stage.SessionsName, hidden: true,
		summary: "keeps the terminals of a session (started by agent-init itself)",
		run:     func(ctx context.Context, _ environment, _ *flag.FlagSet, _ []string) error { return server.Run(ctx) },
	}
}
