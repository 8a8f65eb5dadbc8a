package main

import (
	"context"
	"flag"

	"github.com/agent-init/agent-init/internal/inspect"
)

func logCommand() command {
	return command{
		name: "log", alone: true, synopsis: "[-f] [-n NUMBER] [--denied] [--all] [--since TIME] [--json]",
		summary: "show what was allowed and denied",
		example: "agent-init log -f --denied",
		flags: func(fs *flag.FlagSet) {
			fs.Bool("f", false, "follow: show what is added, until it is interrupted")
			fs.String("n", "", "of the past only the last `NUMBER` lines; with -f it is 10, unless --since is given")
			fs.Bool("denied", false, "only what was denied, or would be in enforce mode")
			fs.Bool("all", false, "the lines of the self-test as well")
			fs.String("since", "", "only what is younger than `TIME`: a duration (10m, 1d), start (of agent-init), or RFC 3339")
			fs.Bool("json", false, "print the lines of the log as they are")
		},
		run: func(ctx context.Context, e environment, fs *flag.FlagSet, args []string) error {
			return inspect.Log(ctx, e.stdout, inspect.LogOptions{
				Since: value(fs, "since"), Last: value(fs, "n"), Follow: isSet(fs, "f"),
				Denied: isSet(fs, "denied"), All: isSet(fs, "all"), JSON: isSet(fs, "json"), Colour: colour(e),
			})
		},
	}
}
