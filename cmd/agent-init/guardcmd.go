package main

import (
	"context"
	"flag"

	"github.com/agent-init/agent-init/internal/guard"
)

func guardCommand() command {
	return command{
		name: "guard", hidden: true,
		summary: "the part that reads the network, without a privilege (started by agent-init itself)",
		run:     func(ctx context.Context, _ environment, _ *flag.FlagSet, _ []string) error { return guard.Run(ctx) },
	}
}
