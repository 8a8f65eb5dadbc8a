package window

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// sessionWindow is a terminal pair and the program on its far side, as the keeper knows it.
type sessionWindow struct {
	id      uint32
	name    string
	argv    []string
	near    *os.File        // a duplicate of the server's
	far     *os.File        // until the program has it
	proc    *reaper.Process // nil until it is started
	started time.Time
	killing bool
	record  *recordFile // nil: not recorded
	place   uint32      // of the record, among those that are written
}

const maxSessionWindows = 16 // bounds what a server may have started at once

func (s *Session) open(name string, argv []string, cols, rows uint16, request uint64) (*reaper.Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, err := s.make(name, argv, cols, rows)
	if err != nil {
		return nil, err
	}
	if err := s.launch(w); err != nil {
		return nil, err
	}
	s.hand(w, request, false)
	return w.proc, nil
}

// openShown starts a command in a new window once a client looks at it, so that nothing of what it prints is seen as a
// screen and not as it came, and so that the terminal is there to answer it. It does not wait for ever.
func (s *Session) openShown(ctx context.Context, argv []string, cols, rows uint16) (*reaper.Process, error) {
	s.mu.Lock()
	w, err := s.make("", argv, cols, rows)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s.start()
	select {
	case <-s.shown.Done():
	case <-time.After(shownWithin):
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.launch(w); err != nil {
		return nil, err
	}
	s.tell(wire.Message{Op: sessionop.Started, ID: w.id, PID: uint32(w.proc.Pid())}, nil)
	return w.proc, nil
}

const shownWithin = 3 * time.Second

// make makes a terminal for a command. The lock is held.
func (s *Session) make(name string, argv []string, cols, rows uint16) (*sessionWindow, error) {
	switch {
	case s.over:
		return nil, errors.New("the session has ended")
	case len(s.windows) >= maxSessionWindows:
		return nil, errors.New("too many windows")
	}
	id := s.nextID
	if name == "" {
		name = filepath.Base(argv[0])
		if sessionop.CheckName(name) != nil {
			name = "window" + strconv.Itoa(int(id))
		}
	}
	record, place, err := s.recordFor(id)
	if err != nil {
		return nil, err
	}
	near, far, err := OpenTerminal(s.host.Identity.UID, cmp.Or(cols, 80), cmp.Or(rows, 24))
	if err != nil {
		record.close()
		return nil, err
	}
	s.nextID++
	w := &sessionWindow{id: id, name: name, argv: argv, near: near, far: far, started: time.Now(), record: record, place: place}
	s.windows[id] = w
	return w, nil
}

// launch starts a window's command, confined as the agent is, or drops the window. The lock is held.
func (s *Session) launch(w *sessionWindow) error {
	k := s.host
	spec := k.AgentSpec()
	spec.Argv, spec.Dir = stage.WithParent(w.argv, k.SignalTarget), s.dir
	spec.Env = append(spec.Env, "AGENT_SESSION="+s.host.Name, Variable+"="+strconv.Itoa(int(w.id)))
	if s.host.Term == "" {
		spec.Env = append(spec.Env, "TERM="+container.DefaultTerm, "COLORTERM=truecolor")
	}
	proc, err := stage.Spawn(k.Reaper, stage.Options{Spec: spec, Stdin: w.far, Stdout: w.far, Stderr: w.far, Terminal: true, Agent: true, Rank: stage.SessionGoes})
	w.far.Close()
	if err != nil {
		s.forget(w)
		return err
	}
	w.proc = proc
	go func() {
		<-proc.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended(w)
	}()
	return nil
}

func (s *Session) forget(w *sessionWindow) {
	delete(s.windows, w.id)
	w.near.Close()
	w.record.close()
}

// Variable tells a program that it is in a window, and in which.
const Variable = "AGENT_SESSION_WINDOW"

// hand gives a window's terminal to the server. The lock is held.
func (s *Session) hand(w *sessionWindow, request uint64, again bool) {
	s.handRecord(w)
	m := wire.Message{Op: sessionop.Window, ID: w.id, Value: w.started.UnixNano(), Arg: request, Text: w.name}
	if w.proc != nil {
		m.PID = uint32(w.proc.Pid())
	}
	if again {
		m.Flag = 1
	}
	s.tell(m, w.near)
}

// ended takes away a window whose program has ended. It may be called again. The lock is held.
func (s *Session) ended(w *sessionWindow) {
	if s.windows[w.id] != w {
		return
	}
	st := w.proc.Status()
	s.forget(w)
	s.tell(wire.Message{Op: sessionop.Exited, ID: w.id, Value: int64(st.Code())}, nil)
	s.over = s.over || len(s.windows) == 0
	s.note(audit.Info, w.proc.Pid(), "window %d (%s) ended: %v", w.id, w.name, st)
}

func (w *sessionWindow) gone() bool {
	if w.proc == nil {
		return false
	}
	select {
	case <-w.proc.Done():
		return true
	default:
		return false
	}
}

// Next names a window that is left when the one that is supervised has ended. If there is none, the session is over.
func (s *Session) Next() *reaper.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.nextID {
		if w := s.windows[id]; w != nil && !w.gone() {
			return w.proc
		}
	}
	s.over = true
	return nil
}

// HangUp tells the windows whose program ignores TERM that their terminal goes, as the end of a container does: an
// interactive shell ends at that. Other programs have been asked to end already, and may need their time.
func (s *Session) HangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.windows {
		if w.proc != nil && slices.ContainsFunc(w.proc.Children(), ignoresTERM) { // its parent sends signals on
			s.signal(w, unix.SIGHUP)
			s.signal(w, unix.SIGCONT)
		}
	}
}

// ignoresTERM says whether a process that still runs has TERM ignored (SigIgn in proc_pid_status(5)).
func ignoresTERM(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false // it has ended
	}
	_, mask, _ := strings.Cut(string(status), "\nSigIgn:\t")
	mask, _, _ = strings.Cut(mask, "\n")
	bits, err := strconv.ParseUint(mask, 16, 64)
	return err == nil && bits&(1<<(unix.SIGTERM-1)) != 0
}

// kill ends a window's program: politely, and after a while not.
func (s *Session) kill(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.windows[id]
	if w == nil || w.proc == nil || w.killing {
		return
	}
	w.killing = true
	kill := w.proc.Job()
	for _, sig := range []syscall.Signal{unix.SIGHUP, unix.SIGTERM, unix.SIGCONT} {
		s.signal(w, sig)
	}
	time.AfterFunc(KillAfter, kill) // and what it has left behind when it has ended
}

// KillAfter is how long a window's program may take to end by itself.
const KillAfter = 5 * time.Second

func (s *Session) signal(w *sessionWindow, sig syscall.Signal) {
	if err := w.proc.SignalGroup(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.host.Log.Warn("ending a window", "window", w.id, "error", err)
	}
}

// OpenTerminal makes a terminal pair of the given size. The far side is uid's, to be opened by name.
//
// The owner is the thread's fsuid (fs/devpts/inode.c, devpts_pty_new), which needs no CAP_CHOWN.
func OpenTerminal(uid uint32, cols, rows uint16) (near, far *os.File, err error) {
	fd, err := openMaster(uid)
	if err != nil {
		return nil, nil, fmt.Errorf("make a terminal: %w", err)
	}
	near = os.NewFile(uintptr(fd), "terminal")
	if far, err = openFarSide(fd); err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: cols, Row: rows})
	}
	if err == nil {
		err = eraseWholeCharacters(int(far.Fd()))
	}
	if err != nil {
		near.Close()
		if far != nil {
			far.Close()
		}
		return nil, nil, fmt.Errorf("make a terminal: %w", err)
	}
	return near, far, nil
}

// openMaster opens the near side under uid, or else as we are: then the programs can't open their terminal by name.
func openMaster(uid uint32) (fd int, err error) {
	open := func() {
		fd, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	if privdrop.FilesAs(int(uid), -1, open); err != nil {
		open()
	}
	return fd, err
}

// openFarSide uses no path where it can (TIOCGPTPEER, Linux 4.13), since a terminal's name need not lead there.
func openFarSide(near int) (*os.File, error) {
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	if err := unix.IoctlSetPointerInt(near, unix.TIOCSPTLCK, 0); err != nil {
		return nil, fmt.Errorf("unlock: %w", err)
	}
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(near), unix.TIOCGPTPEER, flags)
	if errno == 0 {
		return os.NewFile(fd, "far side"), nil
	}
	n, err := unix.IoctlGetInt(near, unix.TIOCGPTN)
	if err != nil {
		return nil, err
	}
	return os.OpenFile("/dev/pts/"+strconv.Itoa(n), flags, 0)
}

// eraseWholeCharacters tells the line discipline that text is UTF-8.
func eraseWholeCharacters(fd int) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	t.Iflag |= unix.IUTF8
	return unix.IoctlSetTermios(fd, unix.TCSETS, t)
}
