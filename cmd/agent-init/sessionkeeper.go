package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper"
	"github.com/agent-init/agent-init/pkg/session"
)

// sessionKeeper keeps one session server running, and owns what must outlive
// it: the windows, the listening socket and the record's file.
type sessionKeeper struct {
	keeper   *keeper
	name     string
	dir      string // where commands start
	term     string // TERM of the container
	uid      uint32 // the server's
	listener *os.File
	record   *recordFile // of the first window; nil: nothing is recorded
	console  *console    // nil: there is no terminal of the container's, or it is not ours
	cancel   context.CancelFunc
	done     chan struct{}
	shown    chan struct{} // closed when a client looks at the first window

	mu         sync.Mutex
	windows    map[uint32]*sessionWindow
	nextID     uint32
	over       bool            // the last window has ended
	live       *sessionChannel // of the server that serves now
	served     bool            // there was a server before
	seen       time.Time       // when the server last said something
	publishing bool            // soon
	looked     bool            // shown is closed
}

const socketFile = "session.sock"

// newSessionKeeper makes the listening socket. Nothing runs yet.
func newSessionKeeper(k *keeper, dir string) (*sessionKeeper, error) {
	uid, err := chooseUID("the session server", k.identity.UID, k.guardUID)
	if err != nil {
		return nil, err
	}
	s := &sessionKeeper{keeper: k, name: k.config.sessionName, dir: dir, term: k.config.environ["TERM"], uid: uid,
		done: make(chan struct{}), shown: make(chan struct{}), windows: map[uint32]*sessionWindow{}}
	if k.config.record != "" {
		if s.record, err = openRecord(k.config.record); err != nil {
			return nil, err
		}
	}
	if s.listener, err = listenFor(filepath.Join(string(k.dir), socketFile), k.identity.GID); err != nil {
		return nil, faultf(exitRules, "use --session never", "make the session's socket: %w", err)
	}
	return s, nil
}

// listenFor makes a listening socket that root and the group gid may connect
// to. Without CAP_CHOWN, the group is that of the thread that makes it.
func listenFor(path string, gid uint32) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	bound := make(chan error)
	go func() {
		runtime.LockOSThread()
		own, _ := unix.SetfsgidRetGid(int(gid))
		err := unix.Bind(fd, &unix.SockaddrUnix{Name: path})
		_ = unix.Setfsgid(own)
		if now, _ := unix.SetfsgidRetGid(-1); now == own {
			runtime.UnlockOSThread()
		}
		bound <- err
	}()
	if err = <-bound; err == nil {
		err = unix.Chmod(path, 0o660)
	}
	if err == nil {
		err = unix.Listen(fd, 64)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "session"), nil
}

// start begins to keep a server running, until stop.
func (s *sessionKeeper) start() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.keeper.update(func(st *state) {
		st.Session = sessionState{Name: s.name, Socket: filepath.Join(string(s.keeper.dir), socketFile), UID: s.uid}
	})
	go s.run(ctx)
}

// run starts servers, one after another.
func (s *sessionKeeper) run(ctx context.Context) {
	defer close(s.done)
	backoff := minBackoff
	for {
		started := time.Now()
		err := s.serve(ctx)
		if ctx.Err() != nil || errors.Is(err, errSessionOver) {
			return
		}
		if time.Since(started) > stableAfter {
			backoff = minBackoff
		}
		s.keeper.log.Error("the session server ended; the programs go on", "error", err, "restart_in", backoff)
		s.keeper.record(audit.Event{Kind: audit.Session, Verdict: audit.Fault, Reason: fmt.Sprintf("session server ended: %v; restart in %v", err, backoff)})
		s.keeper.update(func(st *state) { st.Session.OK, st.Session.Attached = false, 0; st.Session.Restarts++ })
		s.keeper.publish()
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

var errSessionOver = errors.New("the session has ended")

// serve runs one server from its start to its end, and says why it ended.
func (s *sessionKeeper) serve(ctx context.Context) error {
	ours, theirs, err := newPair()
	if err != nil {
		return err
	}
	ch := openSessionChannel(ours)
	defer ch.close()
	proc, err := s.spawn(theirs)
	theirs.Close()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(s.readRequests(ctx, ch)) }()
	go func() { cancel(s.ping(ctx, ch)) }()
	select {
	case <-proc.Done():
		err = fmt.Errorf("%v", proc.Status())
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.mu.Lock()
	s.live = nil
	over := s.over
	s.mu.Unlock()
	if !over {
		ch.close()
	}
	select {
	case <-proc.Done():
	case <-time.After(farewellTime):
	}
	for ended := false; !ended; {
		s.keeper.kill(proc, syscall.SIGKILL)
		select {
		case <-proc.Done():
			ended = true
		case <-time.After(time.Second):
		}
	}
	if over {
		return errSessionOver
	}
	return err
}

// spawn runs the server under its own uid. Its whole input is in a memfd.
func (s *sessionKeeper) spawn(channel *os.File) (*reaper.Process, error) {
	k := s.keeper
	k.mu.Lock()
	clipboard := k.policy == nil || k.policy.Settings().Session.Clipboard
	k.mu.Unlock()
	cfg, err := memfd("session-config", sessionConfig{Name: s.name, AgentUID: k.identity.UID, Clipboard: clipboard, RecordLimit: k.config.recordLimit, LogLevel: k.config.level()})
	if err != nil {
		return nil, err
	}
	defer cfg.Close()
	files := []*os.File{cfg, channel, s.listener}
	return k.spawn(spawnOptions{
		spec: privdrop.Spec{
			Identity: s.identity(), Argv: []string{selfExe, sessionsName}, Env: []string{}, Dir: "/", Umask: 0o077,
			KeepFDs: len(files) + 1, DenyUserNS: true,
		},
		files: files, stderr: k.diagnostics(),
	})
}

// identity is whom the server and the client on the container's terminal run as.
func (s *sessionKeeper) identity() privdrop.Identity {
	return privdrop.Identity{UID: s.uid, GID: s.uid, Name: "agent-init-session", Home: "/", Shell: "/nonexistent"}
}

// readRequests serves what the server asks. It may be anybody's by now: each
// request is one that the agent could fulfil by itself.
func (s *sessionKeeper) readRequests(_ context.Context, ch *sessionChannel) error {
	for {
		m, file, err := ch.receive()
		if file != nil {
			file.Close() // the server has none to give
		}
		if errors.Is(err, errBadMessage) {
			return errors.New("the session server sent a malformed message")
		}
		if err != nil {
			return fmt.Errorf("the session server closed its channel: %w", err)
		}
		s.mu.Lock()
		s.seen = time.Now()
		s.mu.Unlock()
		switch m.op {
		case sopReady:
			s.serving(ch)
		case sopPong:
			s.counted(int(m.arg), int(m.value))
		case sopOpen:
			s.openFor(m)
		case sopKill:
			s.kill(m.id)
		case sopFull:
			s.rotateRecord(m.id)
		case sopEvent:
			s.recordEvent(m)
		default:
			return errors.New("the session server sent an unknown request")
		}
	}
}

// serving hands over what there is. The lock is held throughout, so that every
// window is handed over once.
func (s *sessionKeeper) serving(ch *sessionChannel) {
	s.mu.Lock()
	s.live = ch
	for id := range s.nextID {
		if w := s.windows[id]; w != nil {
			s.hand(w, 0, s.served)
		}
	}
	s.tell(sessionMessage{op: sopReady})
	again := s.served
	s.served = true
	if s.over {
		s.tell(sessionMessage{op: sopEnd})
	}
	s.mu.Unlock()
	s.keeper.update(func(st *state) { st.Session.OK = true })
	if again {
		s.keeper.record(audit.Event{Kind: audit.Session, Verdict: audit.Info, Reason: "session server serves again"})
	}
	s.keeper.publish()
	if s.console != nil {
		s.console.connect(ch)
	}
}

// tell sends a message to the server, if there is one. The lock is held.
func (s *sessionKeeper) tell(m sessionMessage) {
	if s.live == nil {
		return
	}
	if err := s.live.send(m, nil); err != nil {
		s.keeper.log.Debug("telling the session server", "error", err)
	}
}

func (s *sessionKeeper) openFor(m sessionMessage) {
	name, argv, err := splitCommand(m.text)
	if err == nil && name != "" {
		err = session.CheckName(name)
	}
	if err == nil {
		if len(argv) == 0 {
			argv = []string{s.keeper.shell()}
		}
		_, err = s.open(name, argv, m.cols, m.rows, m.arg)
	}
	if err != nil {
		s.mu.Lock()
		s.tell(sessionMessage{op: sopRefused, arg: m.arg, text: err.Error()})
		s.mu.Unlock()
	}
}

// counted notes how many windows and clients there are, for the status.
func (s *sessionKeeper) counted(windows, clients int) {
	s.mu.Lock()
	if clients > 0 && !s.looked {
		s.looked = true
		close(s.shown)
	}
	s.mu.Unlock()
	changed := false
	s.keeper.update(func(st *state) {
		changed = st.Session.Windows != windows || st.Session.Attached != clients
		st.Session.Windows, st.Session.Attached = windows, clients
	})
	if changed {
		s.publishSoon()
	}
}

// publishSoon publishes what has changed, a few times a second at most.
func (s *sessionKeeper) publishSoon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.publishing {
		return
	}
	s.publishing = true
	time.AfterFunc(publishWithin, func() {
		s.mu.Lock()
		s.publishing = false
		s.mu.Unlock()
		s.keeper.publish()
	})
}

const publishWithin = 200 * time.Millisecond

var sessionEvents = map[session.EventKind]string{
	session.EventAttach: "attached to window %d",
	session.EventDetach: "detached from window %d",
	session.EventNew:    "opened window %d",
	session.EventKill:   "asked to end window %d",
	session.EventPutOut: "client put out, it took nothing: window %d",
}

func (s *sessionKeeper) recordEvent(m sessionMessage) {
	if session.EventKind(m.flag) == session.EventRecordLost {
		s.keeper.record(audit.Event{Kind: audit.Session, Verdict: audit.Fault, Reason: fmt.Sprintf("the record of window %d can't be written: it ends here", m.id)})
		return
	}
	text, ok := sessionEvents[session.EventKind(m.flag)]
	if !ok {
		return
	}
	e := audit.Event{Kind: audit.Session, Verdict: audit.Info, UID: &m.uid, PID: int(m.pid), Reason: fmt.Sprintf(text, m.id)}
	if m.arg != 0 {
		e.Reason += ", read-only"
	}
	if m.pid == 0 {
		e.Reason += ", from the container's terminal"
	}
	s.keeper.record(e)
}

// ping finds a server that is alive and does nothing: stopped, or hung.
func (s *sessionKeeper) ping(ctx context.Context, ch *sessionChannel) error {
	t := time.NewTicker(pingEvery)
	defer t.Stop()
	s.mu.Lock()
	s.seen = time.Now()
	s.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
		s.mu.Lock()
		seen := s.seen
		s.mu.Unlock()
		if time.Since(seen) > sessionPatience {
			return fmt.Errorf("the session server did not answer for %v", sessionPatience)
		}
		if err := ch.send(sessionMessage{op: sopPing}, nil); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("ask the session server: %w", err)
		}
	}
}

const sessionPatience = 10 * time.Second

// stop ends the session for whoever looks at it, then the server.
func (s *sessionKeeper) stop() {
	s.mu.Lock()
	s.over = true
	for _, w := range s.windows {
		if w.proc == nil {
			continue
		}
		select {
		case <-w.proc.Done():
			s.ended(w) // or the session would seem to end before its program
		default:
		}
	}
	s.tell(sessionMessage{op: sopEnd})
	live := s.live != nil
	s.mu.Unlock()
	if s.cancel == nil { // it was never started
		return
	}
	if !live {
		s.cancel()
	}
	select {
	case <-s.done:
	case <-time.After(2 * time.Second):
		s.cancel()
	}
	if s.console != nil {
		s.console.stop()
	}
	s.listener.Close()
	_ = os.Remove(filepath.Join(string(s.keeper.dir), socketFile))
}
