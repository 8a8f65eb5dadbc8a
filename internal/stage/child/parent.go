package child

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
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/pkg/privdrop/drop"
	"github.com/agent-init/agent-init/pkg/reaper"
	"github.com/agent-init/agent-init/pkg/reaper/early"
)

// Parent starts the command with that oom_score_adj, and ends as it ends. It has no privilege, and nothing that the
// command has not.
func Parent(argv []string, target, score string) error {
	runtime.GOMAXPROCS(1) // fewer threads: there may be many windows
	stage.Settle(stage.ParentThreads)
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
		if own, err := stage.SetOOMScore(func(int) int { return to }); err == nil {
			back = func() { _, _ = stage.SetOOMScore(func(int) int { return own }) } // to where it was takes no privilege
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
	return endAs(r.Supervise(p, reaper.Options{Signals: signals, Group: stage.SignalGroups[target]}))
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
