package main

import (
	"context"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/inspect"
)

// hintCommand is for images/shell.bash, which calls it when a command has ended.
func hintCommand() command {
	return command{
		name: "hint", least: 4, most: 4, takes: "four arguments", synopsis: "BEGAN PID STATUS fetches|other",
		summary: "say what was refused to a command (for shells, see images/shell.bash)",
		run: func(_ context.Context, e environment, args []string) error {
			h, err := inspect.ReadHint(args)
			if err != nil {
				return fault.New(fault.Usage, `agent-init hint "$EPOCHREALTIME" "$$" "$?" fetches`, "hint: %w", err)
			}
			return h.Tell(e.stdout)
		},
	}
}
