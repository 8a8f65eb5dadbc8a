package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/reaper/early"
)

func sidecarCommand() command {
	return command{
		name: "sidecar", takesSignals: true, synopsis: "[flags]",
		summary: "confine a network namespace that the agent's container shares; stays in the foreground",
		example: "agent-init sidecar --user 1000",
		flags:   configFlags,
		run: func(ctx context.Context, e environment, fs *flag.FlagSet, args []string) error {
			if len(args) > 0 {
				return fault.New(fault.Usage, "start the agent in its own container", "sidecar runs no command, and %q was given", args[0])
			}
			c, err := readConfig(fs, e.env)
			if err != nil {
				return err
			}
			c.sayStrange(e.stderr)
			return keepNetwork(ctx, c, "sidecar", nil)
		},
	}
}

func upCommand() command {
	return command{
		name: "up", synopsis: "[flags]",
		summary: "confine this container's network in the background; safe to repeat",
		example: "agent-init up --user vscode",
		flags:   configFlags,
		run: func(ctx context.Context, e environment, fs *flag.FlagSet, args []string) error {
			if len(args) > 0 {
				return fault.New(fault.Usage, "use agent-init run to start a command", "up runs no command, and %q was given", args[0])
			}
			c, err := readConfig(fs, e.env)
			if err != nil {
				return err
			}
			c.sayStrange(e.stderr)
			return bringUp(ctx, e, c)
		},
	}
}

// bringUp makes sure that a keeper runs: the one there is, or a new one that
// lives on by itself. It returns once the confinement was proved.
func bringUp(ctx context.Context, e environment, c config) error {
	if os.Geteuid() != 0 {
		return fault.New(fault.Privilege, "run it as root: docker exec -u root, or sudo in postStartCommand", "agent-init up needs root, and runs as uid %d", os.Geteuid())
	}
	if dir, err := state.Find(); err == nil {
		var s state.State
		if err := dir.Read(state.StatusFile, &s); err == nil && s.Keeper.Alive() && s.Phase != state.PhaseFailed {
			return bringUpAgain(ctx, s, c)
		}
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
	arg, err := json.Marshal(keeperArgs{Dir: c.dir, User: c.user, SelfTest: c.selftest, Backend: c.backend, LogLevel: c.logLevel, Monitor: c.monitor})
	if err != nil {
		return err
	}
	_, err = os.StartProcess(stage.Self, []string{"agent-init", keeperName, string(arg)}, &os.ProcAttr{
		Dir: "/", Env: e.env, Files: []*os.File{null, null, null, w}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	w.Close()
	if err != nil {
		return fault.New(fault.Rules, "mount /proc in the container", "start the keeper: %w", err)
	}
	var out keeperReport
	for reports := json.NewDecoder(io.LimitReader(r, 1<<20)); ; {
		if err := reports.Decode(&out); err != nil {
			return fault.New(fault.Rules, "run it again with --log-level debug, which says more", "the keeper ended without a word: %w", err)
		}
		if out.Say == "" {
			break
		}
		if show := newProgress(c, os.Stderr); show != nil {
			show.say(out.Say)
		}
		out.Say = ""
	}
	if out.Code != fault.OK {
		// A next try must not find this one still ending.
		_ = r.SetReadDeadline(time.Now().Add(state.EndPatience))
		_, _ = io.Copy(io.Discard, r)
		return fault.New(out.Code, out.Remedy, "%s", out.Cause)
	}
	return nil
}

// bringUpAgain is an up that finds a keeper at work: it has the policy read
// again, which changes nothing if that is the same.
func bringUpAgain(ctx context.Context, s state.State, c config) error {
	if s.Monitor != c.monitor {
		return fault.New(fault.Rules, "restart the container to change the mode", "the keeper that runs here is in %s mode, and %s was asked for", state.ModeWord(s.Monitor), state.ModeWord(c.monitor))
	}
	if s.Phase == state.PhaseReady {
		return reload(ctx)
	}
	return waitReady(time.Now().Add(defaultWait))
}

const keeperName = "__keeper"

// keeperArgs is the configuration on its way to the detached keeper.
type keeperArgs struct {
	Dir, User, SelfTest, Backend, LogLevel string
	Monitor                                bool
}

// keeperReport is what the detached keeper says to who started it: progress, and
// in the end how it went.
type keeperReport struct {
	Say           string
	Code          int
	Cause, Remedy string
}

const fdReport = 3

func keeperCommand() command {
	return command{
		name: keeperName, takesSignals: true, hidden: true,
		summary: "the detached keeper (started by agent-init up)",
		run: func(ctx context.Context, e environment, fs *flag.FlagSet, args []string) error {
			report := os.NewFile(fdReport, "report")
			defer runtime.KeepAlive(report) // else it could be closed before the lock is
			unix.CloseOnExec(fdReport)
			var a keeperArgs
			if len(args) != 1 || json.Unmarshal([]byte(args[0]), &a) != nil {
				return fault.New(fault.Usage, "use agent-init up", "the keeper is started by agent-init itself")
			}
			configFlags(fs)
			c, err := readConfig(fs, e.env)
			if err != nil {
				return err
			}
			c.dir, c.user, c.selftest, c.backend, c.logLevel = a.Dir, a.User, a.SelfTest, a.Backend, a.LogLevel
			c.monitor = a.Monitor
			return keepNetwork(ctx, c, "up", report)
		},
	}
}

// keepNetwork confines the namespace and keeps it so until it is told to end.
// The rules stay when it does.
func keepNetwork(ctx context.Context, c config, mode string, out *os.File) error {
	k, err := newKeeper(c, mode, c.logger(os.Stderr, new(atomic.Bool)))
	if err != nil {
		return err
	}
	defer k.close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		for sig := range early.Signals() {
			switch sig {
			case syscall.SIGHUP:
				if k.ready() {
					// By itself, or a signal to end would wait for it. Its error is in the log and the status.
					go func() { _ = k.reload(context.WithoutCancel(ctx)) }()
				}
			case syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT:
				stop(ending(sig.(syscall.Signal)))
			}
		}
	}()
	k.progress = newProgress(c, os.Stderr)
	if out != nil {
		said := json.NewEncoder(out)
		k.progress = &progress{say: func(text string) { _ = said.Encode(keeperReport{Say: text}) }}
	}
	err = k.boot(ctx)
	if out != nil {
		tellParent(out, err)
	}
	if err != nil {
		if ended := endedBy(ctx); ended != 0 {
			return fault.Status(128 + int(ended))
		}
		return err
	}
	<-ctx.Done()
	k.update(func(s *state.State) {
		s.Phase, s.Reason = state.PhaseEnded, "the keeper was told to end; the rules stay"
	})
	k.endGrants(context.WithoutCancel(ctx))
	k.publish()
	return nil
}

func (k *keeper) ready() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state.Phase == state.PhaseReady
}

// tellParent says how it went. After a failure the pipe stays open for as long
// as this process lives, and holds the lock.
func tellParent(out *os.File, err error) {
	var r keeperReport
	if err == nil {
		defer out.Close()
	} else {
		f := fault.Of(err, "start the keeper")
		r = keeperReport{Code: f.Code, Cause: f.Error(), Remedy: f.Remedy}
	}
	_ = json.NewEncoder(out).Encode(r) // the parent may have been killed
}
