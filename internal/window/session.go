// Package window keeps sessions as the keeper sees them: windows with their programs, the
// container's terminal, and records. It keeps a server running, which holds none of these.
package window

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// Host is what a session takes of the keeper.
type Host struct {
	Log      *slog.Logger
	LogLevel slog.Level
	Reaper   *reaper.Reaper
	Dir      state.Dir
	Identity privdrop.Identity // the agent's
	GuardUID uint32            // which is taken

	Name        string
	Term        string // TERM of the container
	Prefix      string // key of the client on the container's terminal
	Elsewhere   string // the command that attaches from outside
	RecordTo    string // a file, or empty
	RecordLimit int64  // bytes

	Record      audit.Recorder
	Update      func(func(*state.State)) // changes the state under its lock
	Publish     func()
	AgentSpec   func() privdrop.Spec // how the agent is confined
	Shell       func() string        // what a person gets who asks for no command
	Clipboard   func() bool          // programs may write that of who looks at them
	Diagnostics func() *os.File      // where a child may write; nil: nowhere
}

// Session keeps one session server running, and owns what must outlive
// it: the windows, the listening socket and the record's file.
type Session struct {
	host     Host
	name     string
	dir      string // where commands start
	term     string // TERM of the container
	uid, gid uint32 // the server's
	listener *os.File
	record   *recordFile // of the first window; nil: nothing is recorded
	console  *console    // nil: there is no terminal of the container's, or it is not ours
	cancel   context.CancelFunc
	done     chan struct{}
	shown    chan struct{} // closed when a client looks at the first window

	mu         sync.Mutex
	windows    map[uint32]*sessionWindow
	nextID     uint32
	over       bool                 // the last window has ended
	live       *wire.SessionChannel // of the server that serves now
	served     bool                 // there was a server before
	seen       time.Time            // when the server last said something
	publishing bool                 // soon
	looked     bool                 // shown is closed
}

// New makes the listening socket. Nothing runs yet.
func New(k Host, dir string) (*Session, error) {
	uid, err := stage.ChooseUID("the session server", k.Identity.UID, k.GuardUID)
	if err != nil {
		return nil, err
	}
	ids, err := stage.MappedIDs("/proc/self/gid_map")
	if err != nil {
		return nil, err
	}
	s := &Session{host: k, name: k.Name, dir: dir, term: k.Term, uid: uid, gid: stage.OwnGroup(ids, uid, k.Identity.GID),
		done: make(chan struct{}), shown: make(chan struct{}), windows: map[uint32]*sessionWindow{}}
	if k.RecordTo != "" {
		if s.record, err = openRecord(k.RecordTo); err != nil {
			return nil, err
		}
	}
	if s.listener, err = listenFor(filepath.Join(string(k.Dir), state.SessionSocket), k.Identity.GID); err != nil {
		return nil, fault.New(fault.Rules, "use --session never", "make the session's socket: %w", err)
	}
	return s, nil
}

// Begin starts the first window's command, shown on the container's terminal if in and
// out are one. It says to w how else it can be seen.
func (s *Session) Begin(ctx context.Context, argv []string, in, out *os.File, w io.Writer) (*reaper.Process, error) {
	if s.console = newConsole(s, in, out); s.console != nil {
		cols, rows := s.console.size()
		shown, err := s.openShown(ctx, argv, cols, rows)
		if err != nil {
			return nil, err
		}
		return shown.proc, nil
	}
	fmt.Fprintf(w, "agent-init: session %q is detached; %s shows it\n", s.name, s.host.Elsewhere)
	first, err := s.open("", argv, 0, 0, 0)
	if err != nil {
		return nil, err
	}
	s.start()
	return first.proc, nil
}

// start begins to keep a server running, until stop.
func (s *Session) start() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.host.Update(func(st *state.State) {
		st.Session = state.Session{Name: s.name, Socket: filepath.Join(string(s.host.Dir), state.SessionSocket), UID: s.uid}
	})
	go s.run(ctx)
}

// run starts servers, one after another.
func (s *Session) run(ctx context.Context) {
	defer close(s.done)
	backoff := stage.MinBackoff
	for {
		started := time.Now()
		err := s.serve(ctx)
		if ctx.Err() != nil || errors.Is(err, errSessionOver) {
			return
		}
		if time.Since(started) > stage.StableAfter {
			backoff = stage.MinBackoff
		}
		s.host.Log.Error("the session server ended; the programs go on", "error", err, "restart_in", backoff)
		s.host.Record(audit.Event{Kind: audit.Session, Verdict: audit.Fault, Reason: fmt.Sprintf("session server ended: %v; restart in %v", err, backoff)})
		s.host.Update(func(st *state.State) { st.Session.OK, st.Session.Attached = false, 0; st.Session.Restarts++ })
		s.host.Publish()
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, stage.MaxBackoff)
	}
}

var errSessionOver = errors.New("the session has ended")

// serve runs one server from its start to its end, and says why it ended.
func (s *Session) serve(ctx context.Context) error {
	ours, theirs, err := wire.Pair()
	if err != nil {
		return err
	}
	ch := wire.OpenSession(ours)
	defer ch.Close()
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
		ch.Close()
	}
	select {
	case <-proc.Done():
	case <-time.After(stage.FarewellTime):
	}
	for ended := false; !ended; {
		stage.Kill(s.host.Log, proc, syscall.SIGKILL)
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
func (s *Session) spawn(channel *os.File) (*reaper.Process, error) {
	k := s.host
	cfg, err := wire.Memfd("session-config", stage.SessionConfig{Name: s.name, AgentUID: k.Identity.UID, Clipboard: k.Clipboard(), RecordLimit: k.RecordLimit, LogLevel: k.LogLevel})
	if err != nil {
		return nil, err
	}
	defer cfg.Close()
	files := []*os.File{cfg, channel, s.listener}
	return stage.Spawn(k.Reaper, stage.Options{
		Spec: privdrop.Spec{
			Identity: s.identity(), Argv: []string{stage.Self, stage.SessionsName}, Env: []string{}, Dir: "/", Umask: 0o077,
			KeepFDs: len(files) + 1, DenyUserNS: true,
		},
		Files: files, Stderr: k.Diagnostics(), Rank: stage.SessionGoes,
	})
}

// identity is whom the server and the client on the container's terminal run as.
func (s *Session) identity() privdrop.Identity {
	return privdrop.Identity{UID: s.uid, GID: s.gid, Name: "agent-init-session", Home: "/", Shell: "/nonexistent"}
}

// ping finds a server that is alive and does nothing: stopped, or hung.
func (s *Session) ping(ctx context.Context, ch *wire.SessionChannel) error {
	t := time.NewTicker(stage.PingEvery)
	defer t.Stop()
	quiet := stage.Silence{Who: "the session server", Patience: sessionPatience}
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
		if _, err := quiet.Look(seen); err != nil {
			return err
		}
		if err := ch.Send(wire.SessionMessage{Op: wire.SopPing}, nil); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("ask the session server: %w", err)
		}
	}
}

const sessionPatience = 10 * time.Second

// Stop ends the session for whoever looks at it, then the server.
func (s *Session) Stop() {
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
	s.tell(wire.SessionMessage{Op: wire.SopEnd})
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
	_ = os.Remove(filepath.Join(string(s.host.Dir), state.SessionSocket))
}
