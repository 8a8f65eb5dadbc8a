// Package stage starts children of this binary without privileges, says what each is told
// at its start, and judges whether it is alive.
package stage

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// The stage is the second half of every start: a fresh process of the same
// binary that gives up its privileges, proves it, and becomes the command. What
// it is to do is in the memfd that it inherits.

// Name is the command that is one.
const Name = "__stage"

// The descriptors that a stage inherits, and a process of ours after it.
const (
	fdStage  = 3
	fdConfig = 4

	// FDFiles is the first of Options.Files where there is a Config.
	FDFiles = 5
)

// Order is what the stage is to do.
type Order struct {
	Spec     privdrop.Spec `json:"spec"`
	Terminal bool          `json:"terminal,omitempty"` // make standard input the controlling terminal
	Front    bool          `json:"front,omitempty"`    // take its foreground, from wherever it is
	Rank     Rank          `json:"rank,omitempty"`     // who goes first where memory is short
}

// Run becomes what the order says that was inherited. It returns if that fails.
func Run() error {
	var order Order
	f := os.NewFile(fdStage, "stage")
	if err := wire.ReadMemfd(f, &order); err != nil {
		return fault.New(fault.Usage, "use agent-init run or agent-init exec", "the stage is started by agent-init itself")
	}
	// The number stays taken if descriptors follow it.
	if order.Spec.KeepFDs == 0 {
		f.Close()
	}
	_ = GoFirst(order.Rank) // the keeper has said so if it can't be
	if order.Terminal {
		if err := unix.IoctlSetInt(0, unix.TIOCSCTTY, 0); err != nil {
			return fault.New(fault.Privilege, "use --session never", "take the terminal: %w", err)
		}
	}
	if order.Front {
		signal.Ignore(unix.SIGTTOU) // or it would stop us; the command gets the default back
		if err := unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, os.Getpid()); err != nil {
			return fault.New(fault.TerminalLost, "keep the terminal attached, or start the container without -t", "take the terminal's foreground: %w", err)
		}
	}
	return DropFault(privdrop.Exec(order.Spec))
}

// DropFault gives the errors of a drop their exit codes.
func DropFault(err error) error {
	var notExecuted *privdrop.ExecError
	if errors.As(err, &notExecuted) {
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
	var missing *privdrop.CapabilityError
	if errors.As(err, &missing) {
		return capabilityFault(missing)
	}
	var notEntered *privdrop.DirError
	if errors.As(err, &notEntered) {
		return fault.New(fault.Privilege, "start in a directory that the agent may enter: docker exec -w "+Workspace, "%w", notEntered)
	}
	return fault.New(fault.Privilege, "nothing was started; report this with the container's run line", "drop privileges: %w", err)
}

func capabilityFault(missing *privdrop.CapabilityError) *fault.Fault {
	return fault.New(fault.Privilege, CapabilityFix(missing.Capability), "capability %s is missing, which is needed to %s", missing.Capability, missing.Doing)
}

// Workspace is where the agent's work is.
const Workspace = "/workspace"

// Options say what to start through the stage.
type Options struct {
	Spec       privdrop.Spec
	Stdin      *os.File // nil: /dev/null
	Stdout     *os.File
	Stderr     *os.File
	Config     any        // what Told reads, at descriptor 4; nil: nothing
	Files      []*os.File // from the next descriptor on
	Foreground bool
	Front      bool // take the foreground also if it is not ours to give
	Terminal   bool // a session of its own, on the terminal that is stdin
	Agent      bool // part of the tree that is supervised; else a helper of the keeper's
	Rank       Rank
}

// Spawn starts a process that holds no privilege by the time its command runs.
func Spawn(r *reaper.Reaper, o Options) (*reaper.Process, error) {
	var config []*os.File
	if o.Config != nil {
		f, err := wire.Memfd("config", o.Config)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		config = append(config, f)
	}
	files := append(config, o.Files...)
	if len(files) > 0 {
		o.Spec.KeepFDs = 1 + len(files)
	}
	spec, err := wire.Memfd("stage", Order{o.Spec, o.Terminal, o.Front, o.Rank})
	if err != nil {
		return nil, err
	}
	defer spec.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	std := [3]*os.File{o.Stdin, o.Stdout, o.Stderr}
	for i := range std {
		if std[i] == nil {
			std[i] = null
		}
	}
	return r.Start(reaper.Command{
		Path: Self, Args: []string{"agent-init", Name}, Env: []string{}, Dir: "/",
		Files:      append([]*os.File{std[0], std[1], std[2], spec}, files...),
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

// Told is how such a process begins: it reads its whole input, which is Options.Config, and
// makes itself undumpable. The first of Options.Files is its channel to the keeper. Without
// these a person or the agent has typed the command, which is the fault typed.
func Told(config any, typed *fault.Fault) (*net.UnixConn, error) {
	f := os.NewFile(fdConfig, "config")
	if err := wire.ReadMemfd(f, config); err != nil {
		return nil, typed
	}
	f.Close()
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

// CapabilityFix spells a capability in the languages of engines.
func CapabilityFix(name string) string {
	return fault.ByHand.Capabilities(name)
}
