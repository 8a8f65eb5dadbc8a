package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/reaper"
	"github.com/agent-init/agent-init/pkg/session"
)

// sessionWindow is a terminal pair and the program on its far side, as the
// keeper knows it.
type sessionWindow struct {
	id      uint32
	name    string
	near    *os.File // a duplicate of the server's
	proc    *reaper.Process
	started time.Time
	killing bool
}

// maxSessionWindows bounds what a server may have started at once.
const maxSessionWindows = 16

// open starts a command in a new window, confined as the agent is.
func (s *sessionKeeper) open(name string, argv []string, cols, rows uint16, request uint64) (*sessionWindow, error) {
	k := s.keeper
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
		return nil, errors.New("the session has ended")
	case len(s.windows) >= maxSessionWindows:
		return nil, errors.New("too many windows")
	}
	id := s.nextID
	if name == "" {
		name = filepath.Base(argv[0])
		if session.CheckName(name) != nil {
			name = "window" + strconv.Itoa(int(id))
		}
	}
	near, far, err := openTerminal(k.identity.UID, orDefault(cols, 80), orDefault(rows, 24))
	if err != nil {
		return nil, err
	}
	defer far.Close()
	spec := k.agentSpec()
	spec.Argv, spec.Dir = argv, s.dir
	spec.Env = append(spec.Env, "AGENT_SESSION="+s.name, windowVariable+"="+strconv.Itoa(int(id)))
	if s.term == "" {
		spec.Env = append(spec.Env, "TERM=xterm-256color", "COLORTERM=truecolor")
	}
	proc, err := k.spawn(spawnOptions{spec: spec, stdin: far, stdout: far, stderr: far, terminal: true, agent: true})
	if err != nil {
		near.Close()
		return nil, err
	}
	s.nextID++
	w := &sessionWindow{id: id, name: name, near: near, proc: proc, started: time.Now()}
	s.windows[id] = w
	s.hand(w, request, false)
	go s.await(w)
	return w, nil
}

// windowVariable tells a program that it is in a window, and in which.
const windowVariable = "AGENT_SESSION_WINDOW"

func orDefault(n, otherwise uint16) uint16 {
	if n == 0 {
		return otherwise
	}
	return n
}

// hand gives a window's terminal to the server, if there is one. The lock is
// held.
func (s *sessionKeeper) hand(w *sessionWindow, request uint64, again bool) {
	if s.live == nil {
		return
	}
	m := sessionMessage{op: sopWindow, id: w.id, pid: uint32(w.proc.Pid()), value: w.started.UnixNano(), arg: request, text: w.name}
	if again {
		m.flag = 1
	}
	if err := s.live.send(m, w.near); err != nil {
		s.keeper.log.Debug("handing a window to the session server", "error", err)
	}
}

// await sees a window's program to its end.
func (s *sessionKeeper) await(w *sessionWindow) {
	st := w.proc.Status()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.windows, w.id)
	w.near.Close()
	s.tell(sessionMessage{op: sopExited, id: w.id, value: int64(st.Code())})
	if len(s.windows) == 0 {
		s.over = true
	}
	s.keeper.record(audit.Event{Kind: audit.Session, Verdict: audit.Info, PID: w.proc.Pid(),
		Reason: fmt.Sprintf("window %d (%s) ended: %v", w.id, w.name, st)})
}

// next names a window that is left when the one that is supervised has ended.
// If there is none, the session is over.
func (s *sessionKeeper) next() *reaper.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first *sessionWindow
	for _, w := range s.windows {
		select {
		case <-w.proc.Done():
			continue
		default:
		}
		if first == nil || w.id < first.id {
			first = w
		}
	}
	if first == nil {
		s.over = true
		return nil
	}
	return first.proc
}

// kill ends a window's program: politely, and after a while not.
func (s *sessionKeeper) kill(id uint32) {
	s.mu.Lock()
	w := s.windows[id]
	again := w == nil || w.killing
	if !again {
		w.killing = true
	}
	s.mu.Unlock()
	if again {
		return
	}
	for _, sig := range []syscall.Signal{unix.SIGHUP, unix.SIGTERM, unix.SIGCONT} {
		s.signal(w, sig)
	}
	go func() {
		select {
		case <-w.proc.Done():
		case <-time.After(killAfter):
			s.signal(w, unix.SIGKILL)
		}
	}()
}

const killAfter = 5 * time.Second

func (s *sessionKeeper) signal(w *sessionWindow, sig syscall.Signal) {
	err := w.proc.SignalGroup(sig)
	if errors.Is(err, unix.EPERM) {
		err = s.keeper.signalAs([]int{-w.proc.Pid()}, sig)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.keeper.log.Warn("ending a window", "window", w.id, "error", err)
	}
}
