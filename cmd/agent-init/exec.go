package main

import (
	"context"
	"flag"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/stage/child"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/window/client"
	"github.com/agent-init/agent-init/pkg/privdrop/drop"
)

func execCommand() command {
	var must, bare bool
	return command{
		name: "exec", least: 1, most: -1, takes: "a command", synopsis: "[-t|-T] -- CMD [ARG…]",
		summary: "run a command confined exactly as the agent is",
		example: "agent-init exec -- git status",
		flags: func(fs *flag.FlagSet) {
			fs.BoolVar(&must, "t", false, "refuse to start without a terminal; pass your input on even if the output goes elsewhere")
			fs.BoolVar(&bare, "T", false, "give the command this very terminal; a program that it leaves behind can then read what you type")
		},
		run: func(_ context.Context, e environment, args []string) error {
			if must && bare {
				return fault.New(fault.Usage, "leave out one of them", "-t and -T contradict each other")
			}
			agent, err := state.ReadAgent()
			if err != nil {
				return err
			}
			spec := agent.Spec
			spec.Argv = args
			if dir, err := os.Getwd(); err == nil {
				spec.Dir = dir
			}
			own := client.FindTerminal([3]*os.File{e.stdin, os.Stdout, os.Stderr}, must)
			if must && !own.Typed {
				return fault.New(fault.Usage, "use docker exec -it, or leave out -t", "exec -t needs a terminal")
			}
			if own.Out != nil && !bare {
				term, _ := container.Term(container.Environ(e.env)["TERM"])
				if term != "" { // what it is shown on
					spec.Env = append(spec.Env, "TERM="+term)
				}
				own.Filter.Clipboard, own.Filter.Plain = agent.Clipboard, term == "dumb"
				return own.Exec(spec)
			}
			rank := stage.AgentGoes
			if own.Out != nil && leadsSession() {
				spec.Argv, rank = stage.WithParent(spec.Argv, "auto"), stage.SessionGoes
			}
			_ = rank.Take() // as far as the container lets it
			return child.DropFault(drop.Exec(spec))
		},
	}
}

// leadsSession says whether nobody but an engine is above this process, as with docker exec.
func leadsSession() bool {
	leader, err := unix.Getsid(0)
	return err == nil && leader == os.Getpid()
}

// parentCommand is what a program on a terminal has for a parent.
func parentCommand() command {
	var target, score string
	return command{
		name: stage.ParentName, signals: true, least: 1, most: -1, takes: "a command",
		summary: "stays as the parent of a program on a terminal (started by agent-init itself)",
		flags: func(fs *flag.FlagSet) {
			fs.StringVar(&target, "signal-target", "auto", "send signals on to `TARGET`: auto, group or child")
			fs.StringVar(&score, "oom-score", "", "the program's oom_score_adj is `N`")
		},
		run: func(_ context.Context, _ environment, args []string) error { return child.Parent(args, target, score) },
	}
}
