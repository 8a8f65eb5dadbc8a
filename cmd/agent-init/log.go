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
			fs.Bool("f", false, "follow: show new lines until you interrupt it")
			fs.String("n", "", "show only the last `NUMBER` lines; with -f, 10 unless --since is given")
			fs.Bool("denied", false, "show only what was denied, or would be in enforce mode")
			fs.Bool("all", false, "show the self-test's lines, too")
			fs.String("since", "", "show only what is younger than `TIME`: a duration (10m, 1d), start (of agent-init), or RFC 3339")
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
