package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// The stage is the second half of every start: a fresh process of the same
// binary that gives up its privileges, proves it, and becomes the command. What
// it is to do is in the memfd that it inherits.

const (
	stageName = "__stage"
	fdStage   = 3
	maxSpec   = 4 << 20 // bytes of JSON: the environment can be large
)

// stageOrder is what the stage is to do.
type stageOrder struct {
	Spec     privdrop.Spec `json:"spec"`
	Terminal bool          `json:"terminal,omitempty"` // make standard input the controlling terminal
	Front    bool          `json:"front,omitempty"`    // take its foreground, from wherever it is
	Rank     oomRank       `json:"rank,omitempty"`     // who goes first where memory is short
}

func stageCommand() command {
	return command{
		name: stageName, hidden: true,
		summary: "drops every privilege and executes a command (started by agent-init itself)",
		run: func(context.Context, environment, *flag.FlagSet, []string) error {
			var order stageOrder
			f := os.NewFile(fdStage, "stage")
			if err := json.NewDecoder(io.LimitReader(f, maxSpec)).Decode(&order); err != nil {
				return fault.New(fault.Usage, "use agent-init run or agent-init exec", "the stage is started by agent-init itself")
			}
			// The number stays taken if descriptors follow it.
			if order.Spec.KeepFDs == 0 {
				f.Close()
			}
			_ = goFirst(order.Rank) // the keeper has said so if it can't be
			if order.Terminal {
				if err := unix.IoctlSetInt(0, unix.TIOCSCTTY, 0); err != nil {
					return fault.New(fault.Privilege, "use --session never", "take the terminal: %w", err)
				}
			}
			if order.Front {
				signal.Ignore(unix.SIGTTOU) // or it would stop us; the command gets the default back
				if err := unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, os.Getpid()); err != nil {
					return fault.New(exitTerminalLost, "keep the terminal attached, or start the container without -t", "take the terminal's foreground: %w", err)
				}
			}
			return dropFault(privdrop.Exec(order.Spec))
		},
	}
}

// dropFault gives the errors of a drop their exit codes.
func dropFault(err error) error {
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
		return fault.New(fault.Privilege, "start in a directory that the agent may enter: docker exec -w "+state.Workspace, "%w", notEntered)
	}
	return fault.New(fault.Privilege, "nothing was started; report this with the container's run line", "drop privileges: %w", err)
}

func capabilityFault(missing *privdrop.CapabilityError) *fault.Fault {
	return fault.New(fault.Privilege, capabilityFix(missing.Capability), "capability %s is missing, which is needed to %s", missing.Capability, missing.Doing)
}

// spawnOptions say what to start through the stage.
type spawnOptions struct {
	spec       privdrop.Spec
	stdin      *os.File // nil: /dev/null
	stdout     *os.File
	stderr     *os.File
	files      []*os.File // from descriptor 4 on
	foreground bool
	front      bool // take the foreground also if it is not ours to give
	terminal   bool // a session of its own, on the terminal that is stdin
	agent      bool // part of the tree that is supervised; else a helper of the keeper's
	rank       oomRank
}

// spawn starts a process that holds no privilege by the time its command runs.
func (k *keeper) spawn(o spawnOptions) (*reaper.Process, error) {
	spec, err := wire.Memfd("stage", stageOrder{o.spec, o.terminal, o.front, o.rank})
	if err != nil {
		return nil, err
	}
	defer spec.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	std := [3]*os.File{o.stdin, o.stdout, o.stderr}
	for i := range std {
		if std[i] == nil {
			std[i] = null
		}
	}
	return k.reaper.Start(reaper.Command{
		Path: selfExe, Args: []string{"agent-init", stageName}, Env: []string{}, Dir: "/",
		Files:      append([]*os.File{std[0], std[1], std[2], spec}, o.files...),
		Foreground: o.foreground, Setsid: o.terminal, Helper: !o.agent,
	})
}

const selfExe = "/proc/self/exe"

// kill signals a child, also as a root without CAP_KILL.
func (k *keeper) kill(p *reaper.Process, sig syscall.Signal) {
	err := p.Signal(sig)
	if errors.Is(err, unix.EPERM) {
		err = k.signalAs([]int{p.Pid()}, sig)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		k.log.Warn("signalling", "pid", p.Pid(), "signal", sig, "error", err)
	}
}

// signalAs sends sig to processes of other uids, as each of those: this is how a
// root without CAP_KILL ends what it started.
func (k *keeper) signalAs(pids []int, sig syscall.Signal) error {
	byUID := map[uint32][]int{}
	for _, pid := range pids {
		uid, err := ownerOf(max(pid, -pid))
		if err != nil {
			continue // it has ended
		}
		byUID[uid] = append(byUID[uid], pid)
	}
	var errs []error
	for uid, list := range byUID {
		errs = append(errs, privdrop.KillAs(uid, sig, list...))
	}
	return errors.Join(errs...)
}

func ownerOf(pid int) (uint32, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/"+strconv.Itoa(pid), &st); err != nil {
		return 0, err
	}
	return st.Uid, nil
}
