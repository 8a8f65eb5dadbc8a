package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/inspect"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/control"
)

const oneTarget = "one target, in quotes if it has blanks"

func allowCommand() command {
	var r control.Request
	var number int64
	life := lasting{preset: "10m"}
	return command{
		name: "allow", synopsis: "TARGET [--for 10m|start] [--save] [--reason TEXT]", mixed: true, json: "print the grant as JSON",
		most: 1, takes: oneTarget,
		summary: "allow one entry for a time, at once; as root",
		example: "agent-init allow registry.example.com --for 30m --reason \"one build\"",
		flags: func(fs *flag.FlagSet) {
			life.flags(fs, &r, "`TIME` after which it ends by itself, 24h at most; start: when agent-init ends")
			numberFlag(fs, &number, "request", 0, math.MaxUint32, "grant request `NUMBER` of the agent; TARGET may then be left out")
		},
		run: func(ctx context.Context, e environment, args []string) (err error) {
			r.Verb, r.Number = ask.Allow, uint32(number)
			switch {
			case len(args) == 1:
				r.Target = args[0]
			case number == 0:
				return fault.New(fault.Usage, "agent-init allow TARGET, or agent-init allow --request NUMBER",
					"allow takes %s; given: none", oneTarget)
			default:
				if r.Target, err = requested(r.Number); err != nil {
					return err
				}
			}
			return makeGrant(ctx, e, r, life)
		},
	}
}

func denyCommand() command {
	var r control.Request
	life := lasting{preset: startWord}
	return command{
		name: "deny", synopsis: "TARGET [--for TIME|start] [--save] [--reason TEXT]", mixed: true, json: "print the grant as JSON",
		least: 1, most: 1, takes: oneTarget,
		summary: "deny one entry at once, open connections included; as root",
		example: "agent-init deny paste.example.com --reason \"not needed\"",
		flags: func(fs *flag.FlagSet) {
			life.flags(fs, &r, "`TIME` after which it ends by itself; start: when agent-init ends")
		},
		run: func(ctx context.Context, e environment, args []string) error {
			r.Verb, r.Target = ask.Deny, args[0]
			return makeGrant(ctx, e, r, life)
		},
	}
}

func requested(number uint32) (target string, err error) {
	var r grant.Report
	if err := state.Published(state.GrantsFile, &r); err != nil {
		return "", err
	}
	for _, g := range r.Grants {
		if g.Number == number && g.Kind == grant.Request && g.Outcome == "" {
			return g.Target, nil
		}
	}
	return "", fault.New(fault.Usage, "see agent-init grants", "there is no request %d", number)
}

func makeGrant(ctx context.Context, e environment, r control.Request, life lasting) error {
	if r.Save && life.given {
		return fault.New(fault.Usage, "leave out one of the two", "--save is for good, and --for is not")
	}
	if r.Seconds = life.seconds; r.Save {
		r.Seconds = 0
	}
	var g grant.Granted
	if err := ask.Call(ctx, ask.ControlSocket, r, &g); err != nil {
		return err
	}
	for _, w := range g.Warnings {
		fmt.Fprintf(e.stderr, "warning: %s\n", w)
	}
	if e.json {
		return text.JSON(e.stdout, g)
	}
	for _, old := range g.Replaced {
		fmt.Fprintf(e.stdout, "%d ended: %s %s\n", old.Number, old.Kind, old.Target)
	}
	_, err := fmt.Fprintf(e.stdout, "%d: %s %s\n", g.Grant.Number, g.Grant.Says(), g.Grant.Until(g.Grant.Made))
	return err
}

func grantsCommand() command {
	var reason string
	var end int64
	var watch bool
	return command{
		name: "grants", synopsis: "[--json] [--watch] [--end NUMBER [--reason TEXT]]", json: "print them as JSON",
		summary: "show what was allowed, denied and requested at run time",
		example: "agent-init grants",
		flags: func(fs *flag.FlagSet) {
			fs.BoolVar(&watch, "watch", false, "show what waits, and each change from now on, until you interrupt it")
			fs.StringVar(&reason, "reason", "", "`TEXT` for who asked, with --end")
			numberFlag(fs, &end, "end", 0, math.MaxUint32, "end grant `NUMBER` now, or turn down the request with it; as root")
		},
		run: func(ctx context.Context, e environment, _ []string) error {
			switch {
			case watch && end != 0:
				return fault.New(fault.Usage, "agent-init grants --watch, or agent-init grants --end NUMBER", "--watch and --end don't go together")
			case watch:
				return inspect.WatchGrants(ctx, e.stdout, inspect.WatchOptions{JSON: e.json, Bell: e.onTerminal()})
			}
			if end == 0 {
				var r grant.Report
				if err := state.Published(state.GrantsFile, &r); err != nil {
					return err
				}
				return e.show(r, "      ", func(w io.Writer, _ bool) error { return r.Write(w, time.Now()) })
			}
			var g grant.Granted
			if err := ask.Call(ctx, ask.ControlSocket, control.Request{Verb: ask.End, Number: uint32(end), Reason: reason}, &g); err != nil {
				return err
			}
			return e.show(g, "", func(w io.Writer, _ bool) error {
				_, err := fmt.Fprintf(w, "%d ended: %s %s\n", g.Grant.Number, g.Grant.Kind, g.Grant.Target)
				return err
			})
		},
	}
}

func requestCommand() command {
	var reason string
	var wait time.Duration
	return command{
		name: "request", synopsis: "TARGET [--reason TEXT] [--wait TIME]", mixed: true, json: "print the answer as JSON",
		least: 1, most: 1, takes: oneTarget,
		summary: "ask a person to allow one entry; for the agent",
		example: "agent-init request registry.example.com --reason \"to install the linter\" --wait 10m",
		flags: func(fs *flag.FlagSet) {
			fs.StringVar(&reason, "reason", "", "`TEXT` that the person sees")
			timeFlag(fs, &wait, "wait", 0, "block until a person has decided, for `TIME` at most; the exit code says what")
		},
		run: func(ctx context.Context, e environment, args []string) error {
			out, err := inspect.Propose(ctx, args[0], reason)
			if err == nil && wait > 0 {
				if !e.json && out.Number != 0 {
					fmt.Fprintln(e.stderr, out.Says(time.Now()))
				}
				waiting, cancel := context.WithTimeout(ctx, wait)
				defer cancel()
				out, err = inspect.Await(waiting, out)
			}
			if err != nil {
				return err
			}
			err = e.show(out, "", func(w io.Writer, _ bool) error {
				_, err := fmt.Fprintln(w, out.Says(time.Now()))
				return err
			})
			return cmp.Or(err, verdict(out.Code() == fault.OK, out.Code()))
		},
	}
}

// reloadCommand asks over root's socket, not with a signal: a keeper that nohup(1)
// started ignores HUP, so that what it starts does.
func reloadCommand() command {
	return command{
		name: "reload", summary: "read the policy again; a bad one leaves the old one in force",
		example: "agent-init reload",
		run:     func(ctx context.Context, _ environment, _ []string) error { return reload(ctx) },
	}
}

// reload has the keeper read the policy again, and waits for what comes of it.
func reload(ctx context.Context) error {
	return ask.Call(ctx, ask.ControlSocket, control.Request{Verb: ask.Reload}, nil)
}
