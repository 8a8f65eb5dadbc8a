package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/inspect"
	"github.com/agent-init/agent-init/internal/report"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/stage/child"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/privdrop/drop"
	"github.com/agent-init/agent-init/pkg/selftest"
	"github.com/agent-init/agent-init/pkg/selftest/probe"
)

func statusCommand() command {
	var quiet bool
	return command{
		name: "status", synopsis: "[--quiet] [--json]", json: "print the state as JSON",
		summary: "show whether the container is confined and healthy",
		example: "agent-init status --quiet && echo healthy",
		flags:   func(fs *flag.FlagSet) { fs.BoolVar(&quiet, "quiet", false, "print nothing; the exit status tells") },
		run: func(_ context.Context, e environment, _ []string) error {
			var s state.State
			if err := state.Published(state.StatusFile, &s); err != nil {
				return err
			}
			ok, why := s.Healthy(time.Now())
			var err error
			if !quiet {
				err = e.show(state.Report{Healthy: ok, Why: why, State: &s}, strings.Repeat(" ", 11), func(w io.Writer, coloured bool) error {
					var screen strings.Builder
					s.Write(&screen, ok, why, coloured)
					_, err := io.WriteString(w, screen.String())
					return err
				})
			}
			return cmp.Or(err, verdict(ok, fault.Failure))
		},
	}
}

func metricsCommand() command {
	var listen string
	return command{
		name: "metrics", synopsis: "[--listen ADDR]",
		summary: "print or serve counters and states, as Prometheus reads them",
		example: "agent-init metrics --listen :9464",
		flags: func(fs *flag.FlagSet) {
			fs.StringVar(&listen, "listen", "", "serve them at `ADDR` below /metrics, without a privilege, until it is ended")
		},
		run: func(ctx context.Context, e environment, _ []string) error {
			if listen != "" {
				return inspect.ServeMetrics(ctx, listen, func(at net.Addr) error {
					_, err := fmt.Fprintf(e.stderr, "agent-init: metrics at http://%s/metrics\n", at)
					return err
				})
			}
			data, err := state.ReadMetrics()
			if err == nil {
				_, err = e.stdout.Write(data)
			}
			return err
		},
	}
}

func waitCommand() command {
	var timeout time.Duration
	return command{
		name: "wait", synopsis: "[--timeout 30s]",
		summary: "block until the container is confined and proved",
		example: "agent-init wait --timeout 1m",
		flags:   func(fs *flag.FlagSet) { timeFlag(fs, &timeout, "timeout", defaultWait, "give up after `TIME`") },
		run:     func(_ context.Context, e environment, _ []string) error { return inspect.Ready(e.stderr, timeout) },
	}
}

const defaultWait = 30 * time.Second

func explainCommand() command {
	var dir string
	return command{
		name: "explain", synopsis: "HOST[:PORT]|[METHOD] URL|PORT [--json]", mixed: true, json: "print the explanation as JSON",
		least: 1, most: 2, takes: "one name, address, URL or port, and a method before a URL",
		summary: "say why something is allowed or denied, and what to do about it",
		example: "agent-init explain https://api.example.com/v1/items",
		flags:   func(fs *flag.FlagSet) { policyDir(fs, &dir, "`DIR` of the policy, where agent-init does not run") },
		run: func(_ context.Context, e environment, args []string) error {
			method := ""
			if len(args) == 2 {
				method, args = args[0], args[1:]
			}
			r, err := inspect.Explain(dir, method, args[0])
			if err != nil {
				return err
			}
			return e.show(r, strings.Repeat(" ", 15), r.Write)
		},
	}
}

func logCommand() command {
	var o inspect.LogOptions
	var verify bool
	var copied, head string
	return command{
		name: "log", synopsis: "[-f] [-n NUMBER] [--denied] [--all] [--since TIME] [--json] | --verify [--head N:HASH] [--copy FILE]",
		json:    "print the lines of the log as they are; with --verify, the findings as JSON",
		summary: "show what was allowed and denied, or verify that nobody has changed the log",
		example: "agent-init log -f --denied",
		flags: func(fs *flag.FlagSet) {
			fs.BoolVar(&o.Follow, "f", false, "follow: show new lines until you interrupt it")
			numberFlag(fs, &o.Last, "n", 0, math.MaxInt32, "show only the last `NUMBER` lines; with -f, none unless --since is given")
			fs.BoolVar(&o.Denied, "denied", false, "show only what was denied, or would be in enforce mode")
			fs.BoolVar(&o.All, "all", false, "show the self-test's lines, too")
			fs.StringVar(&o.Since, "since", "", "show only what is younger than `TIME`: a duration (10m, 1d), start (of agent-init), or a date (2026-01-31, 09:30)")
			fs.BoolVar(&verify, "verify", false, "say which lines are missing, altered, added or in another place; exit code 1 if any is")
			fs.StringVar(&head, "head", "", "with --verify: a line that has to be there, `N:HASH` as status and the metrics showed it")
			fs.StringVar(&copied, "copy", "", "with --verify: `FILE` is a copy of the log, with older files beside it")
		},
		run: func(ctx context.Context, e environment, _ []string) error {
			switch {
			case verify:
				return verifyLog(e, copied, head)
			case copied+head != "":
				return fault.New(fault.Usage, "agent-init log --verify", "--head and --copy are for --verify")
			}
			o.JSON, o.Colour = e.json, e.colour()
			return inspect.Log(ctx, e.stdout, o)
		},
	}
}

func verifyLog(e environment, copied, head string) error {
	v, err := inspect.VerifyLog(copied, head)
	if err != nil {
		return err
	}
	return cmp.Or(e.show(v, strings.Repeat(" ", 10), v.Write), verdict(v.Whole, fault.Failure))
}

func suggestCommand() command {
	var dir, since, to string
	var unused bool
	return command{
		name: "suggest", synopsis: "[--unused] [--since TIME] [--write FILE] [--json]", json: "print the proposals as JSON",
		summary: "propose allowlist lines for what was denied, or name those that nobody used",
		example: "agent-init suggest --write /etc/agent-init/allowlist.d/suggested.txt",
		flags: func(fs *flag.FlagSet) {
			fs.StringVar(&since, "since", "start", "look at what is younger than `TIME`: a duration (10m), start (of agent-init), all, or a date (2026-01-31, 09:30)")
			fs.BoolVar(&unused, "unused", false, "name the lines of the policy in force that nobody has used")
			fs.StringVar(&to, "write", "", "append the lines to `FILE`, except those that are in it already")
			policyDir(fs, &dir, "`DIR` of the policy, where agent-init does not run")
		},
		run: func(_ context.Context, e environment, _ []string) error {
			if unused {
				return showUnused(e, since, to)
			}
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

func showUnused(e environment, since, to string) error {
	if to != "" {
		return fault.New(fault.Usage, "leave out one of the two", "--unused names lines to take out, and --write adds some")
	}
	u, err := report.FindUnused(report.Options{Since: since, Version: version, Now: time.Now()})
	if err != nil {
		return err
	}
	return e.show(u, "    # ", u.Write)
}

func doctorCommand() command {
	var dir string
	return command{
		name: "doctor", synopsis: "[--json]", json: "print the findings as JSON",
		summary: "find what is wrong with this container, and how to mend it; as root",
		example: "agent-init doctor",
		flags:   func(fs *flag.FlagSet) { policyDir(fs, &dir, "`DIR` of the policy") },
		run: func(ctx context.Context, e environment, _ []string) error {
			if os.Geteuid() != 0 {
				return fault.New(fault.Privilege, "run it as root: docker exec -u root", "doctor looks at what only root can see")
			}
			d := inspect.Examine(ctx, dir, container.Environ(e.env))
			return cmp.Or(e.show(d, strings.Repeat(" ", 13), d.Write), verdict(d.OK, fault.Failure))
		},
	}
}

func selftestCommand() command {
	b := behind{gateway: newGiven("gateway"), reach: newGiven("reach"), allowed: newGiven("allowed")}
	return command{
		name: "selftest", synopsis: "[--json] [--gateway ADDR --reach NAME[:PORT]]", json: "print the report as JSON",
		summary: "prove again, as the agent, what is blocked and what can be reached",
		example: "agent-init selftest",
		flags:   b.flags,
		run: func(ctx context.Context, e environment, _ []string) error {
			prove := probePublished
			switch {
			case len(b.gateway.items)+len(b.reach.items)+len(b.allowed.items) > 0:
				prove = b.prove
			case os.Geteuid() == 0:
				prove = askProbes
			}
			report, err := prove(ctx)
			if errors.Is(err, ask.ErrNobody) {
				return selftestAsAgent(e.json)
			}
			if err != nil {
				return err
			}
			if !e.json {
				err = report.WriteTable(text.Folded(e.stdout, strings.Repeat(" ", 6)), e.colour())
			} else {
				err = text.JSONLine(e.stdout, report)
			}
			return cmp.Or(err, verdict(report.OK, fault.SelfTest))
		},
	}
}

// selftestAsAgent is for a root without a keeper that serves: nobody counts, and the probes
// are run right here. It becomes the agent first: what root can reach proves nothing.
func selftestAsAgent(asJSON bool) error {
	spec, err := state.ReadAgent()
	if err != nil {
		return err
	}
	exe, path, err := stage.UnreadableSelf(3)
	if err != nil {
		return err
	}
	if err := unix.Dup3(int(exe.Fd()), 3, 0); err != nil {
		return fmt.Errorf("pass on the probe: %w", err)
	}
	spec.Argv, spec.Dir, spec.KeepFDs = []string{path, "selftest", fmt.Sprintf("--json=%v", asJSON)}, "/", 1
	return child.DropFault(drop.Exec(spec.Spec))
}

// runProbes is for the keeper, which parses no JSON of a child's.
func runProbes(ctx context.Context) error {
	if err := drop.Confirm(); err != nil {
		return fmt.Errorf("the drop of privileges did not hold: %w", err)
	}
	report, err := makeProbes(ctx, func(plan *selftest.Plan) error { return json.NewDecoder(os.Stdin).Decode(plan) })
	if err == nil {
		_, err = os.Stdout.Write(report.Pack())
	}
	return cmp.Or(err, verdict(report.OK, fault.SelfTest))
}

// probePublished is for the agent itself.
func probePublished(ctx context.Context) (selftest.Report, error) {
	return makeProbes(ctx, func(plan *selftest.Plan) error { return state.Published(state.ProbesFile, plan) })
}

func makeProbes(ctx context.Context, read func(*selftest.Plan) error) (selftest.Report, error) {
	// The running agent, which has the same uid, is not to write the report from outside.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return selftest.Report{}, fmt.Errorf("make the probe undumpable: %w", err)
	}
	var plan selftest.Plan
	if err := read(&plan); err != nil {
		return selftest.Report{}, fmt.Errorf("read what to try: %w", err)
	}
	return probe.Run(ctx, plan), nil
}

// askProbes has the keeper run the probes, which tells them from what the agent does.
func askProbes(ctx context.Context) (report selftest.Report, err error) {
	err = ask.Call(ctx, ask.ControlSocket, control.Request{Verb: ask.SelfTest}, &report)
	return report, err
}
