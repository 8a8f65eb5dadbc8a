package main

import (
	"context"
	"flag"
	"syscall"
	"time"
)

func reloadCommand() command {
	return command{
		name: "reload", summary: "read the policy again; a bad one leaves the old one in force",
		example: "agent-init reload",
		run: func(context.Context, environment, *flag.FlagSet, []string) error {
			dir, err := findRuntimeDir()
			if err != nil {
				return notRunning(err)
			}
			var s state
			if err := dir.read(statusFile, &s); err != nil {
				return notRunning(err)
			}
			return reload(dir, s)
		},
	}
}

// reload has the keeper read the policy again, and waits for what comes of it.
func reload(dir runtimeDir, before state) error {
	if !before.Keeper.alive() {
		return faultf(exitFailure, "start the container again", "the keeper is gone")
	}
	if err := syscall.Kill(before.Keeper.PID, syscall.SIGHUP); err != nil {
		return faultf(exitPrivilege, "run it as root", "ask the keeper to read the policy again: %w", err)
	}
	deadline := time.Now().Add(defaultWait)
	for {
		var s state
		if err := dir.read(statusFile, &s); err != nil {
			return notRunning(err)
		}
		switch {
		case s.Policy.Attempts == before.Policy.Attempts:
		case s.Policy.Fault != "":
			return faultf(exitPolicy, "correct it and reload again; the old policy stays in force", "the policy was not reloaded: %s", s.Policy.Fault)
		default:
			return nil
		}
		if time.Now().After(deadline) {
			return faultf(exitFailure, "see agent-init status", "the keeper did not answer in time")
		}
		time.Sleep(waitStep)
	}
}
