package window

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// console keeps a client of the session on the container's own terminal, for as long as that is there. The client runs
// under the server's uid: it reads what the server sends, and has the terminal and one socket.
type console struct {
	sessions *Session
	in, out  *os.File
	found    unix.Termios // as the terminal was

	mu       sync.Mutex
	proc     *reaper.Process // the last client
	attempts int
	gone     bool // the terminal was lost
	stopping bool
}

// newConsole takes the terminal over, if there is one on both files.
func newConsole(s *Session, in, out *os.File) *console {
	t, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil || !text.IsTerminal(out) {
		return nil
	}
	return &console{sessions: s, in: in, out: out, found: *t}
}

// InBackground reports whether a shell has started us in the background of our terminal.
func InBackground(tty *os.File) bool {
	pgrp := foreground(tty)
	return pgrp != 0 && pgrp != unix.Getpgrp()
}

func foreground(tty *os.File) int {
	pgrp, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return pgrp
}

// connect starts a client of the server behind ch. One of an earlier server ends by itself.
func (c *console) connect(ch *wire.Channel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping || c.gone {
		return
	}
	if c.proc != nil {
		c.end(c.proc)
	}
	if err := c.start(ch); err != nil {
		c.sessions.host.Log.Error("showing the session on the container's terminal", "error", err)
	}
}

func (c *console) start(ch *wire.Channel) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	server, client := os.NewFile(uintptr(fds[0]), "server"), os.NewFile(uintptr(fds[1]), "client")
	defer server.Close()
	defer client.Close()
	if err := ch.Send(wire.Message{Op: sessionop.Client}, server); err != nil {
		return err
	}
	c.restore() // an earlier client may have been killed
	k := c.sessions.host
	proc, err := stage.Spawn(k.Reaper, stage.Options{
		Spec:  c.sessions.own(stage.TerminalName, "--prefix", k.Prefix, "--again", k.Elsewhere),
		Stdin: c.in, Stdout: c.out, Stderr: k.Diagnostics(), Files: []*os.File{client}, Rank: stage.SessionGoes,
		Foreground: true, Front: c.proc != nil && foreground(c.in) == c.proc.Pid(), // still that of a client that has ended
	})
	if err != nil {
		return err
	}
	c.proc = proc
	go c.watch(proc, ch)
	return nil
}

func (c *console) watch(p *reaper.Process, ch *wire.Channel) {
	st := p.Status()
	c.mu.Lock()
	c.gone = c.gone || st.Code() == fault.TerminalLost
	again := c.proc == p && !c.stopping && !c.gone && c.attempts < maxConsoles
	c.attempts++
	c.mu.Unlock()
	if !again {
		return
	}
	time.Sleep(consolePause)
	c.sessions.mu.Lock()
	same := c.sessions.live == ch && !c.sessions.over
	c.sessions.mu.Unlock()
	if same {
		c.connect(ch)
	}
}

const (
	consolePause = time.Second
	maxConsoles  = 1000
)

// end waits for a client that has lost its server, but not for ever.
func (c *console) end(p *reaper.Process) {
	for _, sig := range []syscall.Signal{0, unix.SIGTERM, unix.SIGKILL} {
		if sig != 0 {
			stage.Kill(c.sessions.host.Log, p, sig)
		}
		select {
		case <-p.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// stop ends the client, and leaves the terminal as it was found.
func (c *console) stop() {
	c.mu.Lock()
	c.stopping = true
	p := c.proc
	c.mu.Unlock()
	if p != nil {
		c.end(p)
	}
	c.restore()
	if os.Getpid() == 1 {
		return // nobody is left to whom the terminal could belong
	}
	if p != nil && foreground(c.in) == p.Pid() {
		err := unix.IoctlSetPointerInt(int(c.in.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
		if err != nil && !errors.Is(err, unix.EIO) {
			c.sessions.host.Log.Warn("taking the terminal back", "error", err)
		}
	}
}

func (c *console) restore() {
	_ = unix.IoctlSetTermios(int(c.in.Fd()), unix.TCSETS, &c.found)
}
