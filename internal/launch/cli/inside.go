package cli

import (
	"context"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/launch"
)

// Inside runs "agent-init -C NAME COMMAND…": a command of agent-init's, in the container of that name, as root.
func Inside(ctx context.Context, s Streams, args []string) error {
	if len(args) < 2 {
		return fault.New(fault.Usage, "agent-init -C NAME status; agent-init launch --list shows the names", "-C: say which container, and which command")
	}
	launch.Distrust(".")
	e, err := launch.Find(ctx, "")
	if err != nil {
		return err
	}
	c, err := e.Named(ctx, args[0])
	for _, name := range launch.Engines() { // it may have been started by --engine
		if err == nil {
			break
		}
		if other, no := launch.Find(ctx, name); no == nil && name != e.Name {
			if there, no := other.Named(ctx, args[0]); no == nil {
				e, c, err = other, there, nil
			}
		}
	}
	if err != nil {
		return err
	}
	return e.Become(ctx, s.terminal(), c.Name, args[1:]...)
}
