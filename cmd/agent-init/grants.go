package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/selftest"
)

func allowCommand() command {
	var r control.Request
	var life time.Duration
	var number int64
	return command{
		name: "allow", synopsis: "TARGET [--for 10m] [--reason TEXT]", mixed: true, json: "print the grant as JSON",
		summary: "allow one entry for a time, at once; as root",
		example: "agent-init allow registry.example.com --for 30m --reason \"one build\"",
		flags: func(fs *flag.FlagSet) {
			timeFlag(fs, &life, "for", grant.DefaultFor, "`TIME` after which it ends by itself, 24h at most")
			fs.StringVar(&r.Reason, "reason", "", "`TEXT` for the audit log")
			numberFlag(fs, &number, "request", 0, math.MaxUint32, "grant request `NUMBER` of the agent; TARGET may then be left out")
		},
		run: func(ctx context.Context, e environment, args []string) (err error) {
			r.Verb, r.Number = ask.Allow, uint32(number)
			switch {
			case len(args) > 1 || len(args) == 0 && number == 0:
				return fault.New(fault.Usage, "agent-init allow TARGET, or agent-init allow --request NUMBER", "allow takes one target, and %d were given", len(args))
			case len(args) == 1:
				r.Target = args[0]
			default:
				if r.Target, err = requested(r.Number); err != nil {
					return err
				}
			}
			if life == 0 {
				return fault.New(fault.Usage, "give a time of 24h at most; to allow it for good, write it into a file of the policy", "--for 0: a grant has to end")
			}
			return makeGrant(ctx, e, r, life)
		},
	}
}

func denyCommand() command {
	var r control.Request
	var life time.Duration
	return command{
		name: "deny", synopsis: "TARGET [--for TIME] [--reason TEXT]", mixed: true, json: "print the grant as JSON",
		summary: "deny one entry at once, open connections included; as root",
		example: "agent-init deny paste.example.com --reason \"not needed\"",
		flags: func(fs *flag.FlagSet) {
			timeFlag(fs, &life, "for", 0, "`TIME` after which it ends by itself; 0: when agent-init ends")
			fs.StringVar(&r.Reason, "reason", "", "`TEXT` for the audit log")
		},
		run: func(ctx context.Context, e environment, args []string) error {
			if len(args) != 1 {
				return fault.New(fault.Usage, "agent-init deny TARGET", "deny takes one target, and %d were given", len(args))
			}
			r.Verb, r.Target = ask.Deny, args[0]
			return makeGrant(ctx, e, r, life)
		},
	}
}

func requested(number uint32) (target string, err error) {
	var r grant.Report
	if err := published(state.GrantsFile, &r); err != nil {
		return "", err
	}
	for _, g := range r.Grants {
		if g.Number == number && g.Kind == grant.Request && g.Outcome == "" {
			return g.Target, nil
		}
	}
	return "", fault.New(fault.Usage, "see agent-init grants", "there is no request %d", number)
}

func makeGrant(ctx context.Context, e environment, r control.Request, life time.Duration) error {
	if life > 0 && life < time.Second {
		return fault.New(fault.Usage, "give a time such as 10m or 2h", "--for %v is less than a second", life)
	}
	r.Seconds = int64(life / time.Second)
	var g grant.Granted
	if err := call(ctx, ask.ControlSocket, r, &g); err != nil {
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
	return command{
		name: "grants", alone: true, synopsis: "[--json] [--end NUMBER [--reason TEXT]]", json: "print them as JSON",
		summary: "show what was allowed, denied and requested at run time",
		example: "agent-init grants",
		flags: func(fs *flag.FlagSet) {
			fs.StringVar(&reason, "reason", "", "`TEXT` for who asked, with --end")
			numberFlag(fs, &end, "end", 0, math.MaxUint32, "end grant `NUMBER` now, or turn down the request with it; as root")
		},
		run: func(ctx context.Context, e environment, _ []string) error {
			if end == 0 {
				var r grant.Report
				if err := published(state.GrantsFile, &r); err != nil {
					return err
				}
				return e.show(r, "      ", func(w io.Writer, _ bool) error { return r.Write(w, time.Now()) })
			}
			var g grant.Granted
			if err := call(ctx, ask.ControlSocket, control.Request{Verb: ask.End, Number: uint32(end), Reason: reason}, &g); err != nil {
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
	r := control.Request{Verb: ask.Request}
	return command{
		name: "request", synopsis: "TARGET [--reason TEXT]", mixed: true, json: "print the answer as JSON",
		summary: "ask a person to allow one entry; for the agent",
		example: "agent-init request registry.example.com --reason \"to install the linter\"",
		flags:   func(fs *flag.FlagSet) { fs.StringVar(&r.Reason, "reason", "", "`TEXT` that the person sees") },
		run: func(ctx context.Context, e environment, args []string) error {
			if len(args) != 1 {
				return fault.New(fault.Usage, "agent-init request TARGET", "request takes one target, and %d were given", len(args))
			}
			r.Target = args[0]
			var out grant.Proposed
			if err := call(ctx, ask.RequestSocket, r, &out); err != nil {
				return err
			}
			if e.json {
				return text.JSON(e.stdout, out)
			}
			if out.Allowed != "" {
				_, err := fmt.Fprintf(e.stdout, "%s is allowed already, by %s\n", out.Target, out.Allowed)
				return err
			}
			_, err := fmt.Fprintf(e.stdout, "request %d: %s\na person can grant it with: agent-init allow --request %d\n", out.Number, out.Target, out.Number)
			return err
		},
	}
}

// reloadCommand asks over root's socket, not with a signal: a keeper that nohup(1)
// started ignores HUP, so that what it starts does.
func reloadCommand() command {
	return command{
		name: "reload", alone: true, summary: "read the policy again; a bad one leaves the old one in force",
		example: "agent-init reload",
		run:     func(ctx context.Context, _ environment, _ []string) error { return reload(ctx) },
	}
}

// reload has the keeper read the policy again, and waits for what comes of it.
func reload(ctx context.Context) error {
	return call(ctx, ask.ControlSocket, control.Request{Verb: ask.Reload}, nil)
}

// call asks at one of the sockets of the runtime directory, and reads the answer
// into out. A refusal is the fault that it says.
func call(ctx context.Context, socket string, r control.Request, out any) error {
	patience := 30 * time.Second // the keeper may have to apply a long policy
	if r.Verb == ask.SelfTest {
		patience = selftest.Time + 10*time.Second
	}
	dir, err := state.Find()
	if err != nil {
		return state.NotRunning(err)
	}
	var s state.State
	if dir.Read(state.StatusFile, &s) == nil && s.Phase == state.PhaseOpen {
		return fault.New(fault.Failure, "start without --unsafe-no-firewall",
			"NOT CONFINED: the container was started with an open network, and nothing is allowed, denied or logged")
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	reply, err := control.Call(ctx, filepath.Join(string(dir), socket), r)
	switch {
	case errors.Is(err, control.ErrBounds):
		return fault.New(fault.Usage, "shorten it, and leave control characters out", "%w", err)
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.Privilege, "run it as root (docker exec -u root); the agent can only ask: agent-init request", "only root may change what is allowed")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return fault.New(fault.Failure, "see agent-init status", "%w", errNobodyAnswers)
	case err != nil:
		return fault.New(fault.Failure, "see agent-init status", "%w", err)
	case !reply.OK:
		return fault.New(reply.Code, reply.Remedy, "%s", reply.Error)
	case out == nil:
		return nil
	}
	return json.Unmarshal(reply.Data, out)
}
