package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/session"
)

// execOnTerminal runs a command on a terminal of its own, and shows it on ours:
// what the command may do to its terminal, down to the modes that it leaves
// behind, does not reach ours but as bytes. They are handed on, not read.
func execOnTerminal(spec privdrop.Spec, in, out *os.File) error {
	found, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil || !isTerminal(out) {
		return faultf(exitUsage, "use docker exec -it, or leave out -t", "exec -t needs a terminal")
	}
	var size unix.Winsize
	if s, err := unix.IoctlGetWinsize(int(in.Fd()), unix.TIOCGWINSZ); err == nil {
		size = *s
	}
	near, far, err := openTerminal(spec.Identity.UID, size.Col, size.Row)
	if err != nil {
		return err
	}
	defer near.Close()
	relay, err := pollable(near)
	if err != nil {
		return err
	}
	defer relay.Close()
	order, err := memfd("stage", stageOrder{Spec: spec, Terminal: true})
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, unix.SIGWINCH, unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT)
	p, err := os.StartProcess(selfExe, []string{"agent-init", stageName}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{far, far, far, order}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	far.Close()
	order.Close()
	if err != nil {
		return fmt.Errorf("start %s: %w", spec.Argv[0], err)
	}
	raw := session.Raw(*found)
	if err := unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, &raw); err != nil {
		_ = p.Kill()
		return fmt.Errorf("set the terminal to raw mode: %w", err)
	}
	defer func() { _ = unix.IoctlSetTermios(int(in.Fd()), unix.TCSETSF, found) }()
	go func() { _, _ = io.Copy(relay, in) }()
	shown := make(chan struct{})
	go func() { _, _ = io.Copy(out, relay); close(shown) }() // until nobody has the far side open
	go func() {
		for s := range signals {
			if s == unix.SIGWINCH {
				if size, err := unix.IoctlGetWinsize(int(in.Fd()), unix.TIOCGWINSZ); err == nil {
					_ = unix.IoctlSetWinsize(int(near.Fd()), unix.TIOCSWINSZ, size)
				}
				continue
			}
			if unix.Kill(-p.Pid, s.(syscall.Signal)) == unix.EPERM { // without CAP_KILL we can hang up
				near.Close()
				relay.Close()
			}
		}
	}()
	st, err := p.Wait()
	if err != nil {
		return fmt.Errorf("wait for %s: %w", spec.Argv[0], err)
	}
	select {
	case <-shown:
	case <-time.After(lastShown): // something else holds it open
	}
	if w, ok := st.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return status(128 + int(w.Signal()))
	}
	if st.ExitCode() == exitOK {
		return nil
	}
	return status(st.ExitCode())
}

// lastShown is how long output is waited for after the command has ended.
const lastShown = 300 * time.Millisecond

// pollable is a duplicate of f that a read can be ended on by closing it.
func pollable(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
