package main

import (
	"context"
	"flag"
	"os"
	"strings"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/inspect"
	"github.com/agent-init/agent-init/internal/text"
)

func doctorCommand() command {
	return command{
		name: "doctor", alone: true, synopsis: "[--json]",
		summary: "find what is wrong with this container, and how to mend it; as root",
		example: "agent-init doctor",
		flags: func(fs *flag.FlagSet) {
			fs.Bool("json", false, "print the findings as JSON")
			fs.String("config", "/etc/agent-init", "`DIR` of the policy")
		},
		run: func(ctx context.Context, e environment, fs *flag.FlagSet, args []string) error {
			if os.Geteuid() != 0 {
				return fault.New(fault.Privilege, "run it as root: docker exec -u root", "doctor looks at what only root can see")
			}
			d := inspect.Examine(ctx, value(fs, "config"), container.Environ(e.env))
			var err error
			if isSet(fs, "json") {
				err = text.JSON(e.stdout, d)
			} else {
				err = d.Write(text.Folded(e.stdout, strings.Repeat(" ", 13)), colour(e))
			}
			if err == nil && !d.OK {
				return fault.Status(fault.Failure)
			}
			return err
		},
	}
}
