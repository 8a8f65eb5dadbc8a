package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/control"
)

func allowCommand() command {
	return command{
		name: "allow", synopsis: "TARGET [--for 10m] [--reason TEXT]", mixed: true,
		summary: "allow one entry for a time, at once; as root",
		example: "agent-init allow registry.example.com --for 30m --reason \"one build\"",
		flags: func(fs *flag.FlagSet) {
			timeFlag(fs, "for", grant.DefaultFor, "`TIME` after which it ends by itself, 24h at most")
			fs.String("reason", "", "`TEXT` for the audit log")
			numberFlag(fs, "request", 0, math.MaxUint32, "grant request `NUMBER` of the agent; TARGET may then be left out")
			fs.Bool("json", false, "print the grant as JSON")
		},
		run: func(ctx context.Context, e environment, fs *flag.FlagSet, args []string) error {
			target, number, err := grantTarget(fs, args)
			if err != nil {
				return err
			}
			life, err := grantTime(fs)
			if err == nil && life == 0 {
				err = fault.New(fault.Usage, "give a time of 24h at most; to allow it for good, write it into a file of the policy", "--for 0: a grant has to end")
			}
			if err != nil {
				return err
			}
			return makeGrant(ctx, e, fs, control.Request{Verb: state.VerbAllow, Target: target, Number: number, Seconds: life})
		},
	}
}

func denyCommand() command {
	return command{
		name: "deny", synopsis: "TARGET [--for TIME] [--reason TEXT]", mixed: true,
		summary: "deny one entry at once, open connections included; as root",
		example: "agent-init deny paste.example.com --reason \"not needed\"",
		flags: func(fs *flag.FlagSet) {
			timeFlag(fs, "for", 0, "`TIME` after which it ends by itself; 0: when agent-init ends")
			fs.String("reason", "", "`TEXT` for the audit log")
			fs.Bool("json", false, "print the grant as JSON")
		},
		run: func(ctx context.Context, e environment, fs *flag.FlagSet, args []string) error {
			if len(args) != 1 {
				return fault.New(fault.Usage, "agent-init deny TARGET", "deny takes one target, and %d were given", len(args))
			}
			life, err := grantTime(fs)
			if err != nil {
				return err
			}
			return makeGrant(ctx, e, fs, control.Request{Verb: state.VerbDeny, Target: args[0], Seconds: life})
		},
	}
}

// grantTarget is what is to be allowed: said, or requested by the agent.
func grantTarget(fs *flag.FlagSet, args []string) (target string, number uint32, err error) {
	n, err := strconv.ParseUint(value(fs, "request"), 10, 32)
	switch {
	case err != nil:
		return "", 0, fault.New(fault.Usage, "see agent-init grants", "--request takes the number of a request")
	case len(args) > 1 || len(args) == 0 && n == 0:
		return "", 0, fault.New(fault.Usage, "agent-init allow TARGET, or agent-init allow --request NUMBER", "allow takes one target, and %d were given", len(args))
	case len(args) == 1:
		return args[0], uint32(n), nil
	}
	r, err := readGrants()
	if err != nil {
		return "", 0, err
	}
	for _, g := range r.Grants {
		if g.Number == uint32(n) && g.Kind == grant.Request && g.Outcome == "" {
			return g.Target, g.Number, nil
		}
	}
	return "", 0, fault.New(fault.Usage, "see agent-init grants", "there is no request %d", n)
}

func grantTime(fs *flag.FlagSet) (seconds int64, err error) {
	d, err := time.ParseDuration(value(fs, "for"))
	if err != nil || d < 0 || d > 0 && d < time.Second {
		return 0, fault.New(fault.Usage, "give a time such as 10m or 2h", "--for %s is not a time", value(fs, "for"))
	}
	return int64(d / time.Second), nil
}

func value(fs *flag.FlagSet, name string) string { return fs.Lookup(name).Value.String() }

func makeGrant(ctx context.Context, e environment, fs *flag.FlagSet, r control.Request) error {
	r.Reason = value(fs, "reason")
	var out grant.Granted
	if err := call(ctx, state.ControlSocket, r, &out); err != nil {
		return err
	}
	return reportGranted(e, out, isSet(fs, "json"))
}

func grantsCommand() command {
	return command{
		name: "grants", alone: true, synopsis: "[--json] [--end NUMBER [--reason TEXT]]",
		summary: "show what was allowed, denied and requested at run time",
		example: "agent-init grants",
		flags: func(fs *flag.FlagSet) {
			fs.Bool("json", false, "print them as JSON")
			fs.String("reason", "", "`TEXT` for who asked, with --end")
			numberFlag(fs, "end", 0, math.MaxUint32, "end grant `NUMBER` now, or turn down the request with it; as root")
		},
		run: func(ctx context.Context, e environment, fs *flag.FlagSet, args []string) error {
			n, err := strconv.ParseUint(value(fs, "end"), 10, 32)
			if err != nil {
				return fault.New(fault.Usage, "see agent-init grants", "--end takes the number of a grant")
			}
			asJSON := isSet(fs, "json")
			ending := false
			fs.Visit(func(f *flag.Flag) { ending = ending || f.Name == "end" })
			if ending && n == 0 {
				return fault.New(fault.Usage, "see agent-init grants", "--end takes the number of a grant, and there is no number 0")
			}
			if n != 0 {
				var out grant.Granted
				if err := call(ctx, state.ControlSocket, control.Request{Verb: state.VerbEnd, Number: uint32(n), Reason: value(fs, "reason")}, &out); err != nil {
					return err
				}
				if asJSON {
					return text.JSON(e.stdout, out)
				}
				_, err = fmt.Fprintf(e.stdout, "%d ended: %s %s\n", out.Grant.Number, out.Grant.Kind, out.Grant.Target)
				return err
			}
			r, err := readGrants()
			if err != nil {
				return err
			}
			if asJSON {
				return text.JSON(e.stdout, r)
			}
			return r.Write(text.Folded(e.stdout, "      "), time.Now())
		},
	}
}

func readGrants() (grant.Report, error) {
	var r grant.Report
	dir, err := state.Find()
	if err == nil {
		err = dir.Read(state.GrantsFile, &r)
	}
	if err != nil {
		return r, state.NotRunning(err)
	}
	return r, nil
}

func requestCommand() command {
	return command{
		name: "request", synopsis: "TARGET [--reason TEXT]", mixed: true,
		summary: "ask a person to allow one entry; for the agent",
		example: "agent-init request registry.example.com --reason \"to install the linter\"",
		flags: func(fs *flag.FlagSet) {
			fs.String("reason", "", "`TEXT` that the person sees")
			fs.Bool("json", false, "print the answer as JSON")
		},
		run: func(ctx context.Context, e environment, fs *flag.FlagSet, args []string) error {
			if len(args) != 1 {
				return fault.New(fault.Usage, "agent-init request TARGET", "request takes one target, and %d were given", len(args))
			}
			var out grant.Proposed
			r := control.Request{Verb: state.VerbRequest, Target: args[0], Reason: value(fs, "reason")}
			if err := call(ctx, state.RequestSocket, r, &out); err != nil {
				return err
			}
			if isSet(fs, "json") {
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

// reportGranted says what was granted.
func reportGranted(e environment, g grant.Granted, asJSON bool) error {
	for _, w := range g.Warnings {
		fmt.Fprintf(e.stderr, "warning: %s\n", w)
	}
	if asJSON {
		return text.JSON(e.stdout, g)
	}
	for _, old := range g.Replaced {
		fmt.Fprintf(e.stdout, "%d ended: %s %s\n", old.Number, old.Kind, old.Target)
	}
	_, err := fmt.Fprintf(e.stdout, "%d: %s %s\n", g.Grant.Number, g.Grant.Says(), g.Grant.Until(g.Grant.Made))
	return err
}
