package main

import (
	"bytes"
	"context"
	"flag"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
)

func statusCommand() command {
	return command{
		name: "status", alone: true, synopsis: "[--quiet] [--json]",
		summary: "show whether the container is confined and healthy",
		example: "agent-init status --quiet && echo healthy",
		flags: func(fs *flag.FlagSet) {
			fs.Bool("quiet", false, "print nothing; the exit status tells")
			fs.Bool("json", false, "print the state as JSON")
		},
		run: func(_ context.Context, e environment, fs *flag.FlagSet, _ []string) error {
			dir, err := state.Find()
			if err != nil {
				return state.NotRunning(err)
			}
			var s state.State
			if err := dir.Read(state.StatusFile, &s); err != nil {
				return state.NotRunning(err)
			}
			ok, why := s.Healthy(time.Now())
			switch {
			case isSet(fs, "quiet"):
			case isSet(fs, "json"):
				if err := text.JSON(e.stdout, state.Report{Healthy: ok, Why: why, State: &s}); err != nil {
					return err
				}
			default:
				var screen bytes.Buffer
				s.Write(&screen, ok, why, colour(e))
				if _, err := text.Folded(e.stdout, strings.Repeat(" ", 11)).Write(screen.Bytes()); err != nil {
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

const defaultWait = 30 * time.Second

func waitCommand() command {
	return command{
		name: "wait", alone: true, synopsis: "[--timeout 30s]",
		summary: "block until the container is confined and proved",
		example: "agent-init wait --timeout 1m",
		flags:   func(fs *flag.FlagSet) { timeFlag(fs, "timeout", defaultWait, "give up after `TIME`") },
		run: func(_ context.Context, _ environment, fs *flag.FlagSet, _ []string) error {
			timeout, err := time.ParseDuration(value(fs, "timeout"))
			if err != nil || timeout < 0 {
				return fault.New(fault.Usage, "give a time such as 30s", "--timeout %s is not a time", value(fs, "timeout"))
			}
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
