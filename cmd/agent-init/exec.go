package main

import (
	"context"
	"flag"
	"os"

	"github.com/agent-init/agent-init/pkg/privdrop"
)

func execCommand() command {
	return command{
		name: "exec", synopsis: "[-t] -- CMD [ARG…]",
		summary: "run a command confined exactly as the agent is",
		example: "agent-init exec -- git status",
		flags: func(fs *flag.FlagSet) {
			fs.Bool("t", false, "give the command a terminal of its own, shown on this one")
		},
		run: func(_ context.Context, e environment, fs *flag.FlagSet, args []string) error {
			if len(args) == 0 {
				return faultf(exitUsage, "agent-init exec -- CMD", "no command was given")
			}
			spec, err := readAgentSpec()
			if err != nil {
				return err
			}
			spec.Argv = args
			if dir, err := os.Getwd(); err == nil {
				spec.Dir = dir
			}
			if isSet(fs, "t") {
				if term := environMap(e.env)["TERM"]; term != "" { // what it is shown on
					spec.Env = append(spec.Env, "TERM="+term)
				}
				return execOnTerminal(spec, e.stdin, os.Stdout)
			}
			_ = goFirst(agentGoes) // as far as the container lets it
			return dropFault(privdrop.Exec(spec))
		},
	}
}

// readAgentSpec reads how the agent is confined. Only root may.
func readAgentSpec() (privdrop.Spec, error) {
	var spec privdrop.Spec
	if os.Geteuid() != 0 {
		return spec, faultf(exitPrivilege, "use docker exec -u root, or run the command itself: this user is confined already",
			"only root can become the agent")
	}
	dir, err := findRuntimeDir()
	if err != nil {
		return spec, notRunning(err)
	}
	if err := dir.read(agentFile, &spec); err != nil {
		return spec, notRunning(err)
	}
	return spec, nil
}
