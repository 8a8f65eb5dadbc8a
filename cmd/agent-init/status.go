package main

import (
	"context"
	"flag"
	"io"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
)

func statusCommand() command {
	var quiet bool
	return command{
		name: "status", alone: true, synopsis: "[--quiet] [--json]", json: "print the state as JSON",
		summary: "show whether the container is confined and healthy",
		example: "agent-init status --quiet && echo healthy",
		flags:   func(fs *flag.FlagSet) { fs.BoolVar(&quiet, "quiet", false, "print nothing; the exit status tells") },
		run: func(_ context.Context, e environment, _ []string) error {
			var s state.State
			if err := published(state.StatusFile, &s); err != nil {
				return err
			}
			ok, why := s.Healthy(time.Now())
			if !quiet {
				if err := e.show(state.Report{Healthy: ok, Why: why, State: &s}, strings.Repeat(" ", 11), func(w io.Writer, coloured bool) error {
					var screen strings.Builder
					s.Write(&screen, ok, why, coloured)
					_, err := io.WriteString(w, screen.String())
					return err
				}); err != nil {
					return err
				}
			}
			if !ok {
				return fault.Status(fault.Failure)
			}
			return nil
		},
	}
}

// published reads a file that the keeper has published.
func published(file string, v any) error {
	dir, err := state.Find()
	if err == nil {
		err = dir.Read(file, v)
	}
	if err != nil {
		return state.NotRunning(err)
	}
	return nil
}

func metricsCommand() command {
	return command{
		name: "metrics", alone: true,
		summary: "print counters and states in the text format of Prometheus",
		example: "agent-init metrics > /var/lib/node_exporter/agent-init.prom",
		run: func(_ context.Context, e environment, _ []string) error {
			var s state.State
			if err := published(state.StatusFile, &s); err != nil {
				return err
			}
			return s.WriteMetrics(e.stdout, version, time.Now())
		},
	}
}

const defaultWait = 30 * time.Second

func waitCommand() command {
	var timeout time.Duration
	return command{
		name: "wait", alone: true, synopsis: "[--timeout 30s]",
		summary: "block until the container is confined and proved",
		example: "agent-init wait --timeout 1m",
		flags:   func(fs *flag.FlagSet) { timeFlag(fs, &timeout, "timeout", defaultWait, "give up after `TIME`") },
		run: func(context.Context, environment, []string) error {
			return waitReady(time.Now().Add(timeout))
		},
	}
}

const waitStep = 20 * time.Millisecond

// waitReady returns when the keeper says that it is ready, or why it is not.
func waitReady(deadline time.Time) error {
	for {
		var s state.State
		dir, err := state.Find()
		if err == nil {
			err = dir.Read(state.StatusFile, &s)
		}
		if err == nil {
			if settled, err := s.Settled(); settled {
				return err
			}
		}
		switch {
		case !time.Now().After(deadline):
		case err != nil:
			f := state.NotRunning(err)
			f.Code = fault.SelfTest
			return f
		case !s.Keeper.Alive():
			return fault.New(fault.SelfTest, "see agent-init status", "not ready in time: the keeper is gone, and no other has come")
		default:
			return fault.New(fault.SelfTest, "see agent-init status", "not ready in time: %s", s.Phase)
		}
		time.Sleep(waitStep)
	}
}
