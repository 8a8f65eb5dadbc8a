package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/window"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/session/attach"
	"github.com/agent-init/agent-init/pkg/session/terminal"
)

func execCommand() command {
	var must, bare bool
	return command{
		name: "exec", synopsis: "[-t|-T] -- CMD [ARG…]",
		summary: "run a command confined exactly as the agent is",
		example: "agent-init exec -- git status",
		flags: func(fs *flag.FlagSet) {
			fs.BoolVar(&must, "t", false, "refuse to start without a terminal; pass your input on even if the output goes elsewhere")
			fs.BoolVar(&bare, "T", false, "give the command this very terminal; a program that it leaves behind can then read what you type")
		},
		run: func(_ context.Context, e environment, args []string) error {
			if len(args) == 0 {
				return fault.New(fault.Usage, "agent-init exec -- CMD", "no command was given")
			}
			if must && bare {
				return fault.New(fault.Usage, "leave out one of them", "-t and -T contradict each other")
			}
			agent, err := state.ReadAgent()
			if err != nil {
				return err
			}
			spec := agent.Spec
			spec.Argv = args
			if dir, err := os.Getwd(); err == nil {
				spec.Dir = dir
			}
			own := findTerminal([3]*os.File{e.stdin, os.Stdout, os.Stderr}, must)
			if must && !own.typed {
				return fault.New(fault.Usage, "use docker exec -it, or leave out -t", "exec -t needs a terminal")
			}
			if own.out != nil && !bare {
				term := container.Environ(e.env)["TERM"]
				if term != "" { // what it is shown on
					spec.Env = append(spec.Env, "TERM="+term)
				}
				own.filter.Clipboard, own.filter.Plain = agent.Clipboard, term == "dumb"
				return own.exec(spec)
			}
			_ = stage.AgentGoes.Take() // as far as the container lets it
			return stage.DropFault(privdrop.Exec(spec))
		},
	}
}

// ownTerminal runs a command on a terminal of its own, and shows it on a person's. No descriptor of that one reaches
// the command, so nothing that it leaves behind can read what is typed there later (sudo's use_pty, for the same
// reason). What it prints goes through the filter of sessions, and the modes that it leaves on are taken back.
type ownTerminal struct {
	std     [3]*os.File // ours
	in, out *os.File    // the person's terminal
	typed   bool        // what is typed is for the command
	filter  terminal.Filter

	near, relay *os.File      // our side of the command's terminal; a read of relay, a duplicate, can be ended
	found       *unix.Termios // the person's, as it was
	copying     bool          // what is typed is being handed on
	heard       atomic.Bool   // and the command runs: it gets what the terminal answers
}

// findTerminal finds the terminal that a command would have: by its first three descriptors,
// or as its controlling terminal, which it could open by name. What is typed is for it if it
// shows something there, or if forced: else another program of a pipeline may wait for it.
func findTerminal(std [3]*os.File, forced bool) *ownTerminal {
	o := &ownTerminal{std: std}
	for _, f := range []*os.File{std[1], std[2], std[0]} {
		if o.out == nil && text.IsTerminal(f) {
			o.out = f
		}
	}
	if o.out == nil {
		o.out, _ = os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	}
	o.in = o.out
	if text.IsTerminal(std[0]) {
		o.in, o.typed = std[0], forced || text.IsTerminal(std[1])
	}
	return o
}

func (o *ownTerminal) exec(spec privdrop.Spec) error {
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
	signals := clientSignals()
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
	for range 2 {
		select {
		case <-shown:
		case <-time.After(300 * time.Millisecond): // something else holds it open, or the person's terminal takes nothing
			_ = o.relay.SetReadDeadline(time.Now())
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

// start starts the command. For each terminal of ours it has one of its own, which controls it.
func (o *ownTerminal) start(spec privdrop.Spec, far *os.File) (*os.Process, error) {
	order, err := wire.Memfd("stage", stage.Options{Spec: spec})
	if err != nil {
		return nil, err
	}
	defer order.Close()
	files := []*os.File{o.std[0], o.std[1], o.std[2], order, far}
	for i, f := range o.std {
		switch {
		case i == 0 && text.IsTerminal(f) && !o.typed: // it would wait for ever
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
		return nil, fmt.Errorf("start %s: %w", spec.Argv[0], err)
	}
	return p, nil
}

// takeInput begins to hand on what is typed, once we are in the terminal's foreground:
// from the background, setting its modes would stop us.
func (o *ownTerminal) takeInput() {
	if group, err := unix.IoctlGetInt(int(o.in.Fd()), unix.TIOCGPGRP); !o.typed || err == nil && group != unix.Getpgrp() {
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
func (o *ownTerminal) forward(signals <-chan os.Signal, p *os.Process) {
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

// show shows what the command prints, and takes back what that left on.
func (o *ownTerminal) show(cols, rows int) {
	if cols == 0 || rows == 0 {
		cols, rows = 80, 24
	}
	model := terminal.New(terminal.Options{Cols: cols, Rows: rows, Scrollback: -1})
	steered := false
	var passed []byte
	for b := make([]byte, 64<<10); ; {
		n, err := o.relay.Read(b)
		o.filter.Questions = o.heard.Load() // else a shell would get the answer
		passed = o.filter.Write(passed[:0], b[:n])
		_, _ = model.Write(passed)
		steered = steered || terminal.Steers(passed)
		if _, e := o.out.Write(passed); err != nil || e != nil {
			break
		}
	}
	if passed = o.filter.Close(passed[:0]); steered && !o.filter.Plain {
		passed = append(passed, model.Reset()...)
		if x, _ := model.Cursor(); x > 0 {
			passed = append(passed, "\r\n"...)
		}
	}
	_, _ = o.out.Write(passed)
}
