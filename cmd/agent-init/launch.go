package main

import (
	"context"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/launch/cli"
)

func launchCommand() command {
	var l cli.Launch
	return command{
		name: "launch", most: -1, mixed: true, rest: true, synopsis: cli.Synopsis,
		summary: cli.Summary, example: cli.Example, json: "print the containers for programs (with --list)",
		flags: l.Flags,
		run: func(ctx context.Context, e environment, args []string) error {
			l.JSON = e.json
			return l.Run(ctx, e.streams(), container.Environ(e.env), args, e.rest)
		},
	}
}

func (e environment) streams() cli.Streams {
	return cli.Streams{In: e.stdin, Out: e.stdout, Err: e.stderr}
}
