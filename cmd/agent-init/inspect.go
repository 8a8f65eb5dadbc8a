package main

import (
	"context"
	"flag"
	"os"
	"strings"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/inspect"
)

func explainCommand() command {
	var dir string
	return command{
		name: "explain", synopsis: "HOST[:PORT]|URL|PORT [--json]", mixed: true, json: "print the explanation as JSON",
		summary: "say why something is allowed or denied, and what to do about it",
		example: "agent-init explain https://api.example.com/v1/items",
		flags:   func(fs *flag.FlagSet) { policyDir(fs, &dir, "`DIR` of the policy, where agent-init does not run") },
		run: func(_ context.Context, e environment, args []string) error {
			if len(args) != 1 {
				return fault.New(fault.Usage, "agent-init explain https://api.example.com/", "explain takes one name, address or URL, and %d were given", len(args))
			}
			r, err := inspect.Explain(dir, args[0])
			if err != nil {
				return err
			}
			return e.show(r, strings.Repeat(" ", 15), r.Write)
		},
	}
}

func logCommand() command {
	var o inspect.LogOptions
	return command{
		name: "log", alone: true, synopsis: "[-f] [-n NUMBER] [--denied] [--all] [--since TIME] [--json]", json: "print the lines of the log as they are",
		summary: "show what was allowed and denied",
		example: "agent-init log -f --denied",
		flags: func(fs *flag.FlagSet) {
			fs.BoolVar(&o.Follow, "f", false, "follow: show new lines until you interrupt it")
			fs.StringVar(&o.Last, "n", "", "show only the last `NUMBER` lines; with -f, 10 unless --since is given")
			fs.BoolVar(&o.Denied, "denied", false, "show only what was denied, or would be in enforce mode")
			fs.BoolVar(&o.All, "all", false, "show the self-test's lines, too")
			fs.StringVar(&o.Since, "since", "", "show only what is younger than `TIME`: a duration (10m, 1d), start (of agent-init), or RFC 3339")
		},
		run: func(ctx context.Context, e environment, _ []string) error {
			o.JSON, o.Colour = e.json, e.colour()
			return inspect.Log(ctx, e.stdout, o)
		},
	}
}

func suggestCommand() command {
	var dir, since, to string
	return command{
		name: "suggest", alone: true, synopsis: "[--since TIME] [--write FILE] [--json]", json: "print the proposals as JSON",
		summary: "propose allowlist lines for what was denied",
		example: "agent-init suggest --write /etc/agent-init/allowlist.d/suggested.txt",
		flags: func(fs *flag.FlagSet) {
			fs.StringVar(&since, "since", "start", "look at what is younger than `TIME`: a duration (10m), start (of agent-init), all, or RFC 3339")
			fs.StringVar(&to, "write", "", "append the lines to `FILE`, except those that are in it already")
			policyDir(fs, &dir, "`DIR` of the policy, where agent-init does not run")
		},
		run: func(_ context.Context, e environment, _ []string) error {
			r, err := inspect.Suggest(dir, since)
			if err != nil {
				return err
			}
			if to != "" {
				return r.Append(to, e.stdout, e.stderr)
			}
			return e.show(r, "    # ", r.Write)
		},
	}
}

func doctorCommand() command {
	var dir string
	return command{
		name: "doctor", alone: true, synopsis: "[--json]", json: "print the findings as JSON",
		summary: "find what is wrong with this container, and how to mend it; as root",
		example: "agent-init doctor",
		flags:   func(fs *flag.FlagSet) { policyDir(fs, &dir, "`DIR` of the policy") },
		run: func(ctx context.Context, e environment, _ []string) error {
			if os.Geteuid() != 0 {
				return fault.New(fault.Privilege, "run it as root: docker exec -u root", "doctor looks at what only root can see")
			}
			d := inspect.Examine(ctx, dir, container.Environ(e.env))
			if err := e.show(d, strings.Repeat(" ", 13), d.Write); err != nil {
				return err
			}
			if !d.OK {
				return fault.Status(fault.Failure)
			}
			return nil
		},
	}
}
