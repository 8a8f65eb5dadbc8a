package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"time"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/inspect"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/top"
)

func topCommand() command {
	var once bool
	var every time.Duration
	return command{
		name: "top", synopsis: "[--once] [--json] [--every 1s]", json: "print one frame as JSON",
		summary: "show connections, names, refusals and requests, live",
		example: "docker exec -it -u root CONTAINER /usr/local/bin/agent-init top",
		flags: func(fs *flag.FlagSet) {
			fs.BoolVar(&once, "once", false, "print one frame, with all rows, and end")
			timeFlag(fs, &every, "every", time.Second, "`TIME` between two looks")
		},
		run: func(ctx context.Context, e environment, _ []string) error {
			if every < 100*time.Millisecond {
				return fault.New(fault.Usage, "give a time such as 1s", "--every %v is less than 100ms", every)
			}
			r := top.NewReader(ctx)
			if once || e.json {
				s, err := top.Once(ctx, r, every)
				if err != nil {
					return err
				}
				return e.show(s, "  ", func(w io.Writer, _ bool) error { return s.Write(w, cmp.Or(text.WidthOf(w), 200)) })
			}
			return showTop(ctx, e, r, every)
		},
	}
}

// showTop shows it on the terminal.
func showTop(ctx context.Context, e environment, r *top.Reader, every time.Duration) error {
	none := fault.New(fault.Usage, "use docker exec -it; agent-init top --once and --json print to a file", "top needs a terminal")
	out, ok := e.stdout.(*os.File)
	if !ok || container.Environ(e.env)["TERM"] == "dumb" {
		return none
	}
	explain := func(place string) (string, error) { return inspect.ExplainText(defaultPolicyDir, "", place) }
	err := top.Run(ctx, r, top.Options{In: e.stdin, Out: out, Colour: e.colour(), Every: every, Decide: top.Decide, Explain: explain})
	if errors.Is(err, top.ErrNoTerminal) {
		return none
	}
	return err
}
