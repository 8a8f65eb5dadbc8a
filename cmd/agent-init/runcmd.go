package main

import (
	"context"
	"flag"

	"github.com/agent-init/agent-init/internal/keeper"
)

func runCommand() command {
	return command{
		name: "run", takesSignals: true, synopsis: "[flags] [-- CMD ARG…]",
		summary: "confine the container, prove it, and run the agent",
		example: "agent-init run -- claude",
		flags:   func(fs *flag.FlagSet) { configFlags(fs); superviseFlags(fs) },
		run: func(ctx context.Context, e environment, fs *flag.FlagSet, args []string) error {
			c, err := readConfig(fs, e.env)
			if err != nil {
				return err
			}
			sayStrange(c, e.stderr)
			return keeper.Run(ctx, c, e.stdin, e.stderr, args)
		},
	}
}
