// Command agent-init-host is what of agent-init runs on a host: on a Mac or on Windows, where there are no containers but
// in an engine's virtual machine. It is installed as "agent-init". The program for Linux has the same commands.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/launch/cli"
	"github.com/agent-init/agent-init/internal/text"
)

var version = "dev"

func main() {
	streams := cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	os.Exit(fault.Report(text.Folded(os.Stderr, "  "), run(context.Background(), streams, os.Args[1:])))
}

const usage = `agent-init: AI coding agents in containers, confined to an allowlist

usage:
  agent-init launch [flags] AGENT [DIR] [-- CMD ARG…]   start an agent in a container
  agent-init launch --list | --attach NAME | --stop NAME
  agent-init -C NAME COMMAND                            run a command of agent-init's in a container
  agent-init version

agent-init launch --help shows the flags, agent-init -C NAME help the commands.
`

func run(ctx context.Context, s cli.Streams, args []string) error {
	word := ""
	if len(args) > 0 {
		word = args[0]
	}
	switch word {
	case "help", "-h", "--help":
		_, err := io.WriteString(s.Out, usage)
		return err
	case "version", "--version":
		_, err := fmt.Fprintln(s.Out, version)
		return err
	case "-C":
		return cli.Inside(ctx, s, args[1:])
	case "launch":
		return cli.Command(ctx, s, environ(), args[1:])
	case "":
		return fault.New(fault.Usage, "see agent-init --help", "say what to do")
	}
	return fault.New(fault.Usage, "agent-init -C NAME "+word+" runs it in a container", "%q is no command of the host's", word)
}

func environ() map[string]string {
	env := map[string]string{}
	for _, v := range os.Environ() {
		if name, value, ok := strings.Cut(v, "="); ok {
			env[name] = value
		}
	}
	return env
}
