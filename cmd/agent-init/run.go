package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/keeper"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
)

func runCommand() command {
	var s settings
	return command{
		name: "run", signals: true, synopsis: "[flags] [-- CMD ARG…]",
		summary: "confine the container, prove it, and run the agent",
		example: "agent-init run -- claude",
		flags:   s.supervise,
		run: func(ctx context.Context, e environment, args []string) error {
			c, err := s.read(e)
			if err != nil {
				return err
			}
			return keeper.Run(ctx, c, e.stdin, e.stderr, args)
		},
	}
}

func sidecarCommand() command {
	var s settings
	return command{
		name: "sidecar", signals: true, synopsis: "[flags]",
		summary: "confine a network namespace that the agent's container shares; stays in the foreground",
		example: "agent-init sidecar --user 1000",
		flags:   s.confine,
		run: func(ctx context.Context, e environment, args []string) error {
			if len(args) > 0 {
				return fault.New(fault.Usage, "start the agent in its own container", "sidecar runs no command, and %q was given", args[0])
			}
			c, err := s.read(e)
			if err != nil {
				return err
			}
			return keeper.Keep(ctx, c, "sidecar", nil)
		},
	}
}

func upCommand() command {
	var s settings
	return command{
		name: "up", synopsis: "[flags]",
		summary: "confine this container's network in the background; safe to repeat",
		example: "agent-init up --user vscode",
		flags:   s.confine,
		run: func(ctx context.Context, e environment, args []string) error {
			if len(args) > 0 {
				return fault.New(fault.Usage, "use agent-init run to start a command", "up runs no command, and %q was given", args[0])
			}
			c, err := s.read(e)
			if err != nil {
				return err
			}
			return bringUp(ctx, e, c)
		},
	}
}

// bringUp makes sure that a keeper runs: the one there is, or a new one that
// lives on by itself. It returns once the confinement was proved.
func bringUp(ctx context.Context, e environment, c keeper.Config) error {
	if os.Geteuid() != 0 {
		return fault.New(fault.Privilege, "run it as root: docker exec -u root, or sudo in postStartCommand", "agent-init up needs root, and runs as uid %d", os.Geteuid())
	}
	var s state.State
	if published(state.StatusFile, &s) == nil && s.Keeper.Alive() && s.Phase != state.PhaseFailed {
		return bringUpAgain(ctx, s, c)
	}
	// The new keeper reports over a pipe, and closes it when it is done: it
	// must not depend on the terminal or the shell that started it.
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	_, err = os.StartProcess(stage.Self, append([]string{"agent-init", keeperName}, e.args[1:]...), &os.ProcAttr{
		Dir: "/", Env: e.env, Files: []*os.File{null, null, null, w}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	w.Close()
	if err != nil {
		return fault.New(fault.Rules, "mount /proc in the container", "start the keeper: %w", err)
	}
	for reports := json.NewDecoder(io.LimitReader(r, 1<<20)); ; {
		var out keeper.Report
		switch err := reports.Decode(&out); {
		case err != nil:
			return fault.New(fault.Rules, "run it again with --log-level debug", "the keeper ended without a reason: %w", err)
		case out.Say != "":
			if show := keeper.NewProgress(c, os.Stderr); show != nil {
				show.Say(out.Say)
			}
		case out.Code == fault.OK:
			return nil
		default: // a next try must not find this one still ending
			_ = r.SetReadDeadline(time.Now().Add(state.EndPatience))
			_, _ = io.Copy(io.Discard, r)
			return fault.New(out.Code, out.Remedy, "%s", out.Cause)
		}
	}
}

// bringUpAgain is an up that finds a keeper at work: it has the policy read
// again, which changes nothing if that is the same.
func bringUpAgain(ctx context.Context, s state.State, c keeper.Config) error {
	if s.Monitor != c.Monitor {
		return fault.New(fault.Rules, "restart the container to change the mode", "the keeper that runs here is in %s mode, and %s was asked for", state.ModeWord(s.Monitor), state.ModeWord(c.Monitor))
	}
	if s.Phase == state.PhaseReady {
		return reload(ctx)
	}
	return waitReady(time.Now().Add(defaultWait))
}

const (
	keeperName = "__keeper"
	fdReport   = 3
)

func keeperCommand() command {
	var s settings
	return command{
		name: keeperName, signals: true,
		summary: "the detached keeper (started by agent-init up)",
		flags:   s.confine,
		run: func(ctx context.Context, e environment, _ []string) error {
			report := os.NewFile(fdReport, "report")
			defer runtime.KeepAlive(report) // else it could be closed before the lock is
			unix.CloseOnExec(fdReport)
			c, err := s.read(e)
			if err != nil {
				return err
			}
			return keeper.Keep(ctx, c, "up", tellParent(report))
		},
	}
}

// tellParent hands on what the keeper says. After a failure the pipe stays open for as
// long as this process lives, and holds the lock.
func tellParent(out *os.File) func(keeper.Report) {
	said := json.NewEncoder(out)
	return func(r keeper.Report) {
		_ = said.Encode(r) // the parent may have been killed
		if r.Say == "" && r.Code == fault.OK {
			out.Close()
		}
	}
}
