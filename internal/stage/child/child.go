// Package child is what a process is that package stage has started: it gives up its privileges and becomes the command, or
// it serves the keeper from then on.
package child

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/privdrop/drop"
)

// Run becomes what the order says that was inherited. It returns if that fails.
func Run() error {
	var order stage.Options
	f := os.NewFile(stage.FDStage, "stage")
	if err := wire.ReadMemfd(f, &order); err != nil {
		return fault.New(fault.Usage, "use agent-init run or agent-init exec", "the stage is started by agent-init itself")
	}
	// The number stays taken if descriptors follow it.
	if order.Spec.KeepFDs == 0 {
		f.Close()
	}
	_ = order.Rank.Take() // the keeper has said so if it can't be
	if order.Terminal {
		if err := unix.IoctlSetInt(0, unix.TIOCSCTTY, 0); err != nil {
			return fault.New(fault.Privilege, "use --session never", "take the terminal: %w", err)
		}
		// What nohup, or a script's &, had us ignore would stay ignored: this terminal has an end and a ^C of its own. What
		// is caught is reset as the command is executed.
		signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT)
	}
	if order.Front {
		signal.Ignore(unix.SIGTTOU) // or it would stop us; the command gets the default back
		if err := unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, os.Getpid()); err != nil {
			return fault.New(fault.TerminalLost, "keep the terminal attached, or start the container without -t", "take the terminal's foreground: %w", err)
		}
	}
	return DropFault(drop.Exec(order.Spec))
}

// DropFault gives the errors of a drop their exit codes.
func DropFault(err error) error {
	if notExecuted, ok := errors.AsType[*drop.ExecError](err); ok {
		code := notExecuted.ExitCode()
		remedy := "check the command's name and PATH"
		if code == fault.NoExec {
			remedy = "make the file executable for the agent's user"
			if st, err := os.Stat(notExecuted.Path); err == nil && st.IsDir() {
				remedy = "name a program: this is a directory"
			}
		}
		return fault.New(code, remedy, "%w", notExecuted)
	}
	if missing, ok := errors.AsType[*privdrop.CapabilityError](err); ok {
		return fault.New(fault.Privilege, fault.ByHand.Capabilities(missing.Capability), "capability %s is missing, which is needed to %s", missing.Capability, missing.Doing)
	}
	if notEntered, ok := errors.AsType[*drop.DirError](err); ok {
		return fault.New(fault.Privilege, "start in a directory that the agent may enter: docker exec -w "+stage.Workspace, "%w", notEntered)
	}
	return fault.New(fault.Privilege, "nothing was started; report this with the container's run line", "drop privileges: %w", err)
}

// Told is how such a process begins: it reads its whole input, which is Options.Config, confirms that it has no
// privilege, and makes itself undumpable. The first of Options.Files is its channel to the keeper. Without
// these a person or the agent has typed the command, which is the fault typed.
func Told(config any, typed *fault.Fault) (*net.UnixConn, error) {
	f := os.NewFile(stage.FDConfig, "config")
	if err := wire.ReadMemfd(f, config); err != nil {
		return nil, typed
	}
	f.Close()
	if err := drop.Confirm(); err != nil {
		return nil, fmt.Errorf("the drop of privileges did not hold: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become undumpable: %w", err)
	}
	return wire.OpenPair(os.NewFile(stage.FDConfig+1, "channel"))
}

// ErrKeeperGone ends a process that serves in peace: nobody could open anything for it.
var ErrKeeperGone = errors.New("the keeper is gone")

// Serve settles a process that serves, and says why ctx ends.
func Serve(ctx context.Context) error {
	stage.Settle(stage.ServerThreads)
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, ErrKeeperGone) {
		return cause
	}
	return nil
}
