package client

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/window"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/session/attach"
	"github.com/agent-init/agent-init/pkg/session/terminal"
)

// Terminal runs a command on a terminal of its own, and shows it on a person's. No descriptor of that one reaches
// the command, so nothing that it leaves behind can read what is typed there later (sudo's use_pty, for the same
// reason). What it prints goes through the filter of sessions, and the modes that it leaves on are taken back.
type Terminal struct {
	Out    *os.File // the person's terminal; nil: there is none
	Typed  bool     // what is typed is for the command
	Filter terminal.Filter

	std [3]*os.File // ours
	in  *os.File    // the person's terminal, to read from

	near, relay *os.File      // our side of the command's terminal; a read of relay, a duplicate, can be ended
	found       *unix.Termios // the person's, as it was
	copying     bool          // what is typed is being handed on
	heard       atomic.Bool   // and the command runs: it gets what the terminal answers
}

// FindTerminal finds the terminal that a command would have: by its first three descriptors,
// or as its controlling terminal, which it could open by name. What is typed is for it if it
// shows something there, or if forced: else another program of a pipeline may wait for it.
func FindTerminal(std [3]*os.File, forced bool) *Terminal {
	o := &Terminal{std: std}
	for _, f := range []*os.File{std[1], std[2], std[0]} {
		if o.Out == nil && text.IsTerminal(f) {
			o.Out = f
		}
	}
	if o.Out == nil {
		o.Out, _ = os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	}
	o.in = o.Out
	if text.IsTerminal(std[0]) {
		o.in, o.Typed = std[0], forced || text.IsTerminal(std[1])
	}
	return o
}

// Exec runs it as spec says, and ends as it ends.
func (o *Terminal) Exec(spec privdrop.Spec) error {
	var err error
	if o.found, err = unix.IoctlGetTermios(int(o.in.Fd()), unix.TCGETS); err != nil {
		return fmt.Errorf("look at the terminal: %w", err)
	}
	var size unix.Winsize
	if s, err := unix.IoctlGetWinsize(int(o.in.Fd()), unix.TIOCGWINSZ); err == nil {
		size = *s
	}
	near, far, err := window.OpenTerminal(spec.Identity.UID, size.Col, size.Row)
	if err != nil {
		return err
	}
	defer near.Close()
	defer far.Close()
	o.near = near
	fd, err := unix.FcntlInt(near.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return err
	}
	o.relay = os.NewFile(uintptr(fd), near.Name())
	defer o.relay.Close()
	signals := Signals()
	p, err := o.start(spec, far)
	if err != nil {
		return err
	}
	o.takeInput()
	defer func() {
		if o.copying {
			_ = unix.IoctlSetTermios(int(o.in.Fd()), unix.TCSETSF, o.found)
		}
	}()
	shown, ended := make(chan struct{}), make(chan struct{})
	go func() { o.show(int(size.Col), int(size.Row)); close(shown) }() // until nobody has the far side open
	go func() { o.forward(signals, p); close(ended) }()
	st, err := p.Wait()
	o.heard.Store(false)
	far.Close() // until now, since a program that has it by name alone holds nothing open
	if err != nil {
		return fmt.Errorf("wait for %s: %w", spec.Argv[0], err)
	}
	select {
	case <-shown:
	case <-time.After(lastOutput):
		_ = o.relay.SetReadDeadline(time.Now())
		select {
		case <-shown:
		case <-time.After(lastShown):
		}
	}
	signal.Stop(signals)
	close(signals)
	<-ended
	if w, ok := st.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return fault.Status(128 + int(w.Signal()))
	}
	return fault.Status(st.ExitCode())
}

const (
	lastOutput = 300 * time.Millisecond // is how long output is waited for after the command's end, while something else holds its terminal open
	lastShown  = 10 * time.Second       // is how long a person's terminal may take nothing of it
)

// start starts the command. For each terminal of ours it has one of its own, which controls it.
func (o *Terminal) start(spec privdrop.Spec, far *os.File) (*os.Process, error) {
	command := spec.Argv[0]
	spec.Argv = stage.WithParent(spec.Argv, "auto")
	order, err := wire.Memfd("stage", stage.Options{Spec: spec, Rank: stage.SessionGoes})
	if err != nil {
		return nil, err
	}
	defer order.Close()
	files := []*os.File{o.std[0], o.std[1], o.std[2], order, far}
	for i, f := range o.std {
		switch {
		case i == 0 && text.IsTerminal(f) && !o.Typed: // it would wait for ever
			if files[0], err = os.Open(os.DevNull); err != nil {
				return nil, err
			}
			defer files[0].Close()
		case text.IsTerminal(f):
			files[i] = far
		}
	}
	p, err := os.StartProcess(stage.Self, []string{"agent-init", stage.Name}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: files, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: len(files) - 1},
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", command, err)
	}
	return p, nil
}

// takeInput begins to hand on what is typed, once we are in the terminal's foreground:
// from the background, setting its modes would stop us.
func (o *Terminal) takeInput() {
	if group, err := unix.IoctlGetInt(int(o.in.Fd()), unix.TIOCGPGRP); !o.Typed || err == nil && group != unix.Getpgrp() {
		return
	}
	raw := attach.Raw(*o.found)
	if err := unix.IoctlSetTermios(int(o.in.Fd()), unix.TCSETS, &raw); err != nil || o.copying {
		return
	}
	o.copying = true
	o.heard.Store(true)
	go func() { _, _ = io.Copy(o.relay, o.in) }()
}

// forward acts on signals: those that would end us are for the command.
func (o *Terminal) forward(signals <-chan os.Signal, p *os.Process) {
	for s := range signals {
		switch s {
		case unix.SIGWINCH:
			if size, err := unix.IoctlGetWinsize(int(o.in.Fd()), unix.TIOCGWINSZ); err == nil {
				_ = unix.IoctlSetWinsize(int(o.near.Fd()), unix.TIOCSWINSZ, size)
			}
		case unix.SIGCONT:
			o.takeInput()
		default:
			if unix.Kill(-p.Pid, s.(syscall.Signal)) == unix.EPERM { // without CAP_KILL we can hang up
				o.near.Close()
				o.relay.Close()
			}
		}
	}
}

// rest reads what the command's terminal still has when the time to read it is over: on a busy machine that may be all of it.
// A terminal holds less than b (drivers/tty/pty.c, pty_common_install, and N_TTY_BUF_SIZE), and what else prints there no more.
func (o *Terminal) rest(b []byte) (n int) {
	raw, err := o.relay.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		for m := 1; m > 0 && n < len(b); n += max(m, 0) {
			m, _ = unix.Read(int(fd), b[n:])
		}
	})
	return n
}

// show shows what the command prints, and takes back what that left on.
func (o *Terminal) show(cols, rows int) {
	if cols == 0 || rows == 0 {
		cols, rows = 80, 24
	}
	model := terminal.New(terminal.Options{Cols: cols, Rows: rows, Scrollback: -1})
	steered := false
	var passed []byte
	for b := make([]byte, 64<<10); ; {
		n, err := o.relay.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			n = o.rest(b)
		}
		o.Filter.Questions = o.heard.Load() // else a shell would get the answer
		passed = o.Filter.Write(passed[:0], b[:n])
		_, _ = model.Write(passed)
		steered = steered || terminal.Steers(passed)
		if _, e := o.Out.Write(passed); err != nil || e != nil {
			break
		}
	}
	if passed = o.Filter.Close(passed[:0]); steered && !o.Filter.Plain {
		passed = append(passed, model.Reset()...)
		if x, _ := model.Cursor(); x > 0 {
			passed = append(passed, "\r\n"...)
		}
	}
	_, _ = o.Out.Write(passed)
}
