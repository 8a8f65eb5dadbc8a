package main

import (
	"context"
	"flag"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/inspect"
	"github.com/agent-init/agent-init/internal/text"
)

func explainCommand() command {
	return command{
		name: "explain", synopsis: "HOST[:PORT]|URL|PORT [--json]", mixed: true,
		summary: "say why something is allowed or denied, and what to do about it",
		example: "agent-init explain https://api.example.com/v1/items",
		flags: func(fs *flag.FlagSet) {
			fs.Bool("json", false, "print the explanation as JSON")
			fs.String("config", "/etc/agent-init", "`DIR` of the policy, where agent-init does not run")
		},
		run: func(_ context.Context, e environment, fs *flag.FlagSet, args []string) error {
			if len(args) != 1 {
				return fault.New(fault.Usage, "agent-init explain https://api.example.com/", "explain takes one name, address or URL, and %d were given", len(args))
			}
			r, err := inspect.Explain(value(fs, "config"), args[0])
			if err != nil {
				return err
			}
			if isSet(fs, "json") {
				return text.JSON(e.stdout, r)
			}
			return r.Write(text.Folded(e.stdout, strings.Repeat(" ", 15)), colour(e))
		},
	}
}
