package stage

import (
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/privdrop/drop"
	"github.com/agent-init/agent-init/pkg/reaper"
	"github.com/agent-init/agent-init/pkg/reaper/early"
)

// ParentName is the command that starts a program on a terminal, and stays as its parent.
//
// A program suspends itself on ^Z by a TSTP to its own process group. The kernel discards that if the group is orphaned:
// no member has a parent in another group of the same session (setpgid(2); is_current_pgrp_orphaned in kernel/exit.c).
// Claude Code has given the terminal back by then, and waits for a CONT for good. A program that leads the session is
// always orphaned. So this process leads it, with the program in a group of its own, as a shell would; and
// resumes what stops, since no shell is there for that.
const ParentName = "__parent"

// WithParent starts the command through ParentName, which sends signals on as target says (SignalGroups). The process is to
// have the rank SessionGoes: it may be the largest of many, and its end is that of the command, which has AgentGoes.
func WithParent(argv []string, target string) []string {
	score := "" // the kernel does not tell
	if own, err := setOOMScore(func(own int) int { return own }); err == nil {
		score = strconv.Itoa(AgentGoes.oomScore(own))
	}
	return append([]string{Self, ParentName, "--signal-target", target, "--oom-score", score, "--"}, argv...)
}

// SignalGroups say which signals go to the agent's group, by --signal-target. By default, these are TERM, INT, HUP and
// QUIT.
var SignalGroups = map[string]func(syscall.Signal) bool{
	"group": func(syscall.Signal) bool { return true },
	"child": func(syscall.Signal) bool { return false },
}

// Parent starts the command with that oom_score_adj, and ends as it ends. It has no privilege, and nothing that the
// command has not.
func Parent(argv []string, target, score string) error {
	runtime.GOMAXPROCS(1) // fewer threads: there may be many windows
	settle(parentThreads)
	received, signals := early.Signals(), make(chan os.Signal, 1024)
	go func() {
		for sig := range received {
			if sig != syscall.SIGPIPE { // this process's own
				signals <- sig
			}
		}
	}()
	r := reaper.NewParent(slog.New(slog.DiscardHandler)) // standard error is the program's screen
	// None of the standard descriptors need be the terminal.
	tty, _ := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	back := func() {}
	if to, err := strconv.Atoi(score); err == nil {
		if own, err := setOOMScore(func(int) int { return to }); err == nil {
			back = func() { _, _ = setOOMScore(func(int) int { return own }) } // to where it was takes no privilege
		}
	}
	var p *reaper.Process
	err := drop.Execute(argv, os.Environ(), func(path string, argv, env []string) (err error) {
		p, err = r.Start(reaper.Command{
			Path: path, Args: argv, Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Foreground: true, TTY: tty,
		})
		return err
	})
	if err != nil {
		return DropFault(err)
	}
	back()
	return endAs(r.Supervise(p, reaper.Options{Signals: signals, Group: SignalGroups[target]}))
}

// endAs ends this process by the signal that has ended the command, so that who waits for it can't tell the two apart. The
// runtime would handle some signals even after signal.Reset, by writing stacks or not at all.
func endAs(st reaper.Status) error {
	if w := syscall.WaitStatus(st); w.Signaled() {
		var byDefault [4]uint64 // sigaction of the kernel's asm-generic/signal.h: SIG_DFL, no flags, nothing masked
		signal.Reset(w.Signal())
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(w.Signal()), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
		runtime.LockOSThread()
		_ = unix.Tgkill(os.Getpid(), unix.Gettid(), w.Signal()) // to this thread: it does not return from the call
	}
	return fault.Status(st.Code())
}
