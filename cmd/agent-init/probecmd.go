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
		name: "selftest", alone: true, synopsis: "[--json]",
		summary: "prove again, as the agent, what is blocked and what can be reached",
		example: "agent-init selftest",
		flags:   func(fs *flag.FlagSet) { fs.Bool("json", false, "print the report as JSON") },
		run: func(ctx context.Context, e environment, fs *flag.FlagSet, args []string) error {
			asJSON := isSet(fs, "json")
			if os.Geteuid() == 0 {
				return selftestAsRoot(ctx, e, asJSON)
			}
			report, err := makeProbes(ctx)
			if err != nil {
				return err
			}
			return showReport(e, report, asJSON)
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
	return command{
		name: stage.ProbeName, hidden: true,
		summary: "the probes of the self-test (started by agent-init itself)",
		flags: func(fs *flag.FlagSet) {
			fs.Bool("json", false, "")
			fs.Bool("packed", false, "")
		},
		run: func(ctx context.Context, e environment, fs *flag.FlagSet, _ []string) error {
			report, err := makeProbes(ctx)
			if err != nil {
				return err
			}
			if isSet(fs, "packed") {
				return packReport(e, report)
			}
			return showReport(e, report, isSet(fs, "json"))
		},
	}
}

func makeProbes(ctx context.Context) (selftest.Report, error) {
	// Beside a running agent, which has the same uid, nobody is to write the
	// report from outside.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return selftest.Report{}, fmt.Errorf("make the probe undumpable: %w", err)
	}
	dir, err := state.Find()
	if err != nil {
		return selftest.Report{}, state.NotRunning(err)
	}
	var plan selftest.Plan
	if err := dir.Read(state.ProbesFile, &plan); err != nil {
		return selftest.Report{}, state.NotRunning(err)
	}
	return probe.Run(ctx, plan), nil
}

// packReport is showReport for the keeper, which parses no JSON of a child's.
func packReport(e environment, report selftest.Report) error {
	if _, err := e.stdout.Write(report.Pack()); err != nil {
		return err
	}
	return verdictOf(report)
}

func showReport(e environment, report selftest.Report, asJSON bool) error {
	if asJSON {
		if err := json.NewEncoder(e.stdout).Encode(report); err != nil {
			return err
		}
	} else if err := report.WriteTable(text.Folded(e.stdout, strings.Repeat(" ", 6)), colour(e)); err != nil {
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
func selftestAsRoot(ctx context.Context, e environment, asJSON bool) error {
	var report selftest.Report
	err := callFor(ctx, proveTime, state.ControlSocket, control.Request{Verb: state.VerbSelfTest}, &report)
	if errors.Is(err, errNobodyAnswers) {
		return selftestAsAgent(asJSON)
	}
	if err != nil {
		return err
	}
	return showReport(e, report, asJSON)
}

var errNobodyAnswers = errors.New("nobody answers: agent-init does not run, or is still starting")
