package main

import (
	"context"
	"flag"

	"github.com/agent-init/agent-init/internal/stage"
)

func stageCommand() command {
	return command{
		name: stage.Name, hidden: true,
		summary: "drops every privilege and executes a command (started by agent-init itself)",
		run:     func(context.Context, environment, *flag.FlagSet, []string) error { return stage.Run() },
	}
}
