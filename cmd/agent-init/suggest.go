package main

import (
	"context"
	"flag"

	"github.com/agent-init/agent-init/internal/inspect"
	"github.com/agent-init/agent-init/internal/text"
)

func suggestCommand() command {
	return command{
		name: "suggest", alone: true, synopsis: "[--since TIME] [--write FILE] [--json]",
		summary: "propose allowlist lines for what was denied",
		example: "agent-init suggest --write /etc/agent-init/allowlist.d/suggested.txt",
		flags: func(fs *flag.FlagSet) {
			fs.String("since", "start", "look at what is younger than `TIME`: a duration (10m), start (of agent-init), all, or RFC 3339")
			fs.String("write", "", "append the lines to `FILE`, except those that are in it already")
			fs.Bool("json", false, "print the proposals as JSON")
			fs.String("config", "/etc/agent-init", "`DIR` of the policy, where agent-init does not run")
		},
		run: func(_ context.Context, e environment, fs *flag.FlagSet, args []string) error {
			r, err := inspect.Suggest(value(fs, "config"), value(fs, "since"))
			if err != nil {
				return err
			}
			if to := value(fs, "write"); to != "" {
				return r.Append(to, e.stdout, e.stderr)
			}
			if isSet(fs, "json") {
				return text.JSON(e.stdout, r)
			}
			return r.Write(text.Folded(e.stdout, "    # "), colour(e))
		},
	}
}
