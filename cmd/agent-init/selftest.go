package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/selftest"
	"github.com/agent-init/agent-init/pkg/selftest/probe"
)

func selftestCommand() command {
	return command{
		name: "selftest", alone: true, synopsis: "[--json]", json: "print the report as JSON",
		summary: "prove again, as the agent, what is blocked and what can be reached",
		example: "agent-init selftest",
		run: func(ctx context.Context, e environment, _ []string) error {
			if os.Geteuid() == 0 {
				return selftestAsRoot(ctx, e)
			}
			report, err := makeProbes(ctx)
			if err != nil {
				return err
			}
			return showReport(e, report)
		},
	}
}

// selftestAsAgent becomes the agent first: what root can reach proves nothing.
func selftestAsAgent(asJSON bool) error {
	spec, err := state.ReadAgentSpec()
	if err != nil {
		return err
	}
	exe, err := stage.UnreadableSelf()
	if err != nil {
		return err
	}
	if err := unix.Dup3(int(exe.Fd()), stage.FDKept, 0); err != nil {
		return fmt.Errorf("pass on the probe: %w", err)
	}
	spec.Argv, spec.Dir, spec.KeepFDs = []string{stage.FDPath(stage.FDKept), stage.ProbeName, fmt.Sprintf("--json=%v", asJSON)}, "/", 1
	return stage.DropFault(privdrop.Exec(spec))
}

func probeCommand() command {
	var packed bool
	return command{
		name: stage.ProbeName, json: "as JSON",
		summary: "the probes of the self-test (started by agent-init itself)",
		flags: func(fs *flag.FlagSet) {
			fs.BoolVar(&packed, "packed", false, "for the keeper, which parses no JSON of a child's")
		},
		run: func(ctx context.Context, e environment, _ []string) error {
			report, err := makeProbes(ctx)
			if err != nil {
				return err
			}
			if !packed {
				return showReport(e, report)
			}
			if _, err := e.stdout.Write(report.Pack()); err != nil {
				return err
			}
			return verdictOf(report)
		},
	}
}

func makeProbes(ctx context.Context) (selftest.Report, error) {
	// Beside a running agent, which has the same uid, nobody is to write the
	// report from outside.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return selftest.Report{}, fmt.Errorf("make the probe undumpable: %w", err)
	}
	var plan selftest.Plan
	if err := published(state.ProbesFile, &plan); err != nil {
		return selftest.Report{}, err
	}
	return probe.Run(ctx, plan), nil
}

func showReport(e environment, report selftest.Report) error {
	if e.json {
		if err := json.NewEncoder(e.stdout).Encode(report); err != nil {
			return err
		}
	} else if err := report.WriteTable(text.Folded(e.stdout, strings.Repeat(" ", 6)), e.colour()); err != nil {
		return err
	}
	return verdictOf(report)
}

// verdictOf is the status that a self-test ends with.
func verdictOf(report selftest.Report) error {
	if !report.OK {
		return fault.Status(fault.SelfTest)
	}
	return nil
}

// proveTime is how long a person waits for a self-test.
const proveTime = stage.SelfTestTime + 10*time.Second

// selftestAsRoot has the keeper run the probes, which tells them from what the agent
// does. Without a keeper that serves, nobody counts, and they are run right here.
func selftestAsRoot(ctx context.Context, e environment) error {
	var report selftest.Report
	err := callFor(ctx, proveTime, state.ControlSocket, control.Request{Verb: state.VerbSelfTest}, &report)
	if errors.Is(err, errNobodyAnswers) {
		return selftestAsAgent(e.json)
	}
	if err != nil {
		return err
	}
	return showReport(e, report)
}

var errNobodyAnswers = errors.New("nobody answers: agent-init does not run, or is still starting")
