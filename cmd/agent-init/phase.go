package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/policy"
)

func phaseCommand() command {
	return command{
		name: "phase", synopsis: "[setup|run|verify]", mixed: true, json: "print the change and its proof as JSON", words: "setup run verify",
		most: 1, takes: "one phase",
		summary: "show the phase of an evaluation, or enter another one; as root",
		example: "agent-init phase run",
		run: func(ctx context.Context, e environment, args []string) error {
			if len(args) == 0 {
				return showPhase(e)
			}
			return enterPhase(ctx, e, args[0])
		},
	}
}

func showPhase(e environment) error {
	var s state.State
	if err := state.Published(state.StatusFile, &s); err != nil {
		return err
	}
	out := ask.PhaseChange{Version: 1, Phase: cmp.Or(s.Policy.Phase, policy.Run), Fault: s.Policy.PhaseFault}
	out.Was = out.Phase
	return e.show(out, "", func(w io.Writer, _ bool) error {
		_, err := fmt.Fprintln(w, out.Phase)
		return err
	})
}

// enterPhase ends well only if the phase is in force, and its proof is none that failed.
func enterPhase(ctx context.Context, e environment, to string) error {
	var out ask.PhaseChange
	if err := ask.Call(ctx, ask.ControlSocket, control.Request{Verb: ask.Phase, Target: to}, &out); err != nil {
		return err
	}
	err := e.show(out, strings.Repeat(" ", 6), func(w io.Writer, coloured bool) error {
		if out.Proof != nil {
			if err := out.Proof.WriteTable(w, coloured); err != nil {
				return err
			}
		}
		words := out.Was + " -> " + out.Phase
		switch {
		case out.Fault != "":
			words += ": " + out.Fault
		case out.Proof == nil:
			words += ", not proved"
		}
		_, err := fmt.Fprintln(w, words)
		return err
	})
	proved := out.Proof == nil || out.Proof.OK
	return cmp.Or(err, verdict(out.Phase == to && out.Fault == "" && proved, fault.SelfTest))
}
