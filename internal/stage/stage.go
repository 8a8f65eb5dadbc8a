// Package stage starts children of this binary without privileges, tells each what it needs, and judges it.
//
// A stage is the second half of a start: a fresh process of the same binary that gives up its privileges, proves
// it, and becomes the command. What it is to do is in the memfd that it inherits. It is root's until it has executed
// itself: before that it shares the keeper's memory (vfork in syscall.ForkExec), and another process of its uid could
// stop it, and the keeper with it.
package stage

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/privdrop/drop"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// The descriptors that a stage inherits, and a process of ours after it.
const (
	fdStage  = 3
	fdConfig = 4

	FDAlone = 4 // the first of Options.Files where there is no Config
	FDFiles = 5 // and where there is one
)

// Run becomes what the order says that was inherited. It returns if that fails.
func Run() error {
	var order Options
	f := os.NewFile(fdStage, "stage")
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
		return fault.New(fault.Privilege, "start in a directory that the agent may enter: docker exec -w "+Workspace, "%w", notEntered)
	}
	return fault.New(fault.Privilege, "nothing was started; report this with the container's run line", "drop privileges: %w", err)
}

// Workspace is where the agent's work is.
const Workspace = "/workspace"

// Options say what to start through the stage. What it is told of them is its order.
type Options struct {
	Spec     privdrop.Spec `json:"spec"`
	Terminal bool          `json:"terminal,omitempty"` // a session of its own, on the terminal that is stdin
	Front    bool          `json:"front,omitempty"`    // take the foreground also if it is not ours to give
	Rank     Rank          `json:"rank,omitempty"`     // who goes first where memory is short

	Stdin      *os.File   `json:"-"` // nil: /dev/null
	Stdout     *os.File   `json:"-"`
	Stderr     *os.File   `json:"-"`
	Config     any        `json:"-"` // what Told reads, at descriptor 4; nil: nothing
	Files      []*os.File `json:"-"` // from the next descriptor on
	Foreground bool       `json:"-"`
	Agent      bool       `json:"-"` // part of the tree that is supervised; else a helper of the keeper's
}

// Spawn starts a process that holds no privilege by the time its command runs.
func Spawn(r *reaper.Reaper, o Options) (*reaper.Process, error) {
	files := o.Files
	if o.Config != nil {
		f, err := wire.Memfd("config", o.Config)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		files = append([]*os.File{f}, files...)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	std := []*os.File{cmp.Or(o.Stdin, null), cmp.Or(o.Stdout, null), cmp.Or(o.Stderr, null)}
	if len(files) > 0 {
		o.Spec.KeepFDs = 1 + len(files)
	}
	order, err := wire.Memfd("stage", o)
	if err != nil {
		return nil, err
	}
	defer order.Close()
	return r.Start(reaper.Command{
		Path: Self, Args: []string{"agent-init", Name}, Env: []string{}, Dir: "/", Files: slices.Concat(std, []*os.File{order}, files),
		Foreground: o.Foreground, Setsid: o.Terminal, Helper: !o.Agent,
	})
}

// Own is how a process of this binary runs that serves, under an identity of its own.
func Own(name string, uid, gid uint32, argv ...string) privdrop.Spec {
	return privdrop.Spec{
		Identity: privdrop.Identity{UID: uid, GID: gid, Name: "agent-init-" + name, Home: "/", Shell: "/nonexistent"},
		Argv:     append([]string{Self}, argv...), Env: []string{}, Dir: "/", Umask: 0o077, DenyUserNS: true,
	}
}

// Told is how such a process begins: it reads its whole input, which is Options.Config, confirms that it has no
// privilege, and makes itself undumpable. The first of Options.Files is its channel to the keeper. Without
// these a person or the agent has typed the command, which is the fault typed.
func Told(config any, typed *fault.Fault) (*net.UnixConn, error) {
	f := os.NewFile(fdConfig, "config")
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
	return wire.OpenPair(os.NewFile(fdConfig+1, "channel"))
}

// Self is the file of this very program.
const Self = "/proc/self/exe"

// Kill signals a child, and says so where that fails.
func Kill(log *slog.Logger, p *reaper.Process, sig syscall.Signal) {
	if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		log.Warn("signalling", "pid", p.Pid(), "signal", sig, "error", err)
	}
}
