package window

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/ids"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// console keeps a client of the session on the container's own terminal, for as long as that is there. Who sits there has
// started the container, and answers what the agent asks for. So the client has a uid of its own: the server, which
// reads what the agent prints, can't touch it. It has the terminal, one socket to the server, and one to the keeper.
type console struct {
	sessions *Session
	uid, gid uint32
	in, out  *os.File
	found    unix.Termios // as the terminal was

	mu       sync.Mutex
	proc     *reaper.Process // the last client
	attempts int
	gone     bool // the terminal was lost
	stopping bool
}

// newConsole takes the terminal over, if there is one on both files.
func newConsole(s *Session, in, out *os.File) (*console, error) {
	t, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil || !text.IsTerminal(out) {
		return nil, nil
	}
	uid, err := ids.ChooseUID("the client on the container's terminal", s.host.SocketOwners, append(s.host.Taken, s.host.Identity.UID, s.uid)...)
	if err != nil {
		return nil, err
	}
	gid, err := ids.OwnGroup(uid, s.host.Identity.GID)
	return &console{sessions: s, uid: uid, gid: gid, in: in, out: out, found: *t}, err
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
	argv, files := []string{stage.TerminalName, "--prefix", k.Prefix, "--again", k.Elsewhere}, []*os.File{client}
	var ours *net.UnixConn
	if k.Decide != nil {
		var theirs *os.File
		if ours, theirs, err = wire.Pair(); err != nil {
			return err
		}
		defer theirs.Close()
		argv, files = append(argv, "--answers"), append(files, theirs)
	}
	proc, err := stage.Spawn(k.Reaper, stage.Options{
		Spec:  stage.Own("terminal", c.uid, c.gid, argv...),
		Stdin: c.in, Stdout: c.out, Stderr: k.Diagnostics(), Files: files, Rank: stage.SessionGoes,
		Foreground: true, Front: c.proc != nil && foreground(c.in) == c.proc.Pid(), // still that of a client that has ended
	})
	if err != nil {
		if ours != nil {
			ours.Close()
		}
		return err
	}
	if ours != nil {
		go k.serveAnswers(wire.Open(ours, sessionop.MaxText), control.Peer{UID: c.uid, PID: proc.Pid(), Terminal: true})
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
