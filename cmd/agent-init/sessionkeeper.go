package main

import (
	"context"
	"errors"
	"fmt"
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

// sessionKeeper keeps one session server running, and owns what must outlive
// it: the windows, the listening socket and the record's file.
type sessionKeeper struct {
	keeper   *keeper
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

// newSessionKeeper makes the listening socket. Nothing runs yet.
func newSessionKeeper(k *keeper, dir string) (*sessionKeeper, error) {
	uid, err := stage.ChooseUID("the session server", k.identity.UID, k.guardUID)
	if err != nil {
		return nil, err
	}
	ids, err := stage.MappedIDs("/proc/self/gid_map")
	if err != nil {
		return nil, err
	}
	s := &sessionKeeper{keeper: k, name: k.config.sessionName, dir: dir, term: k.config.environ["TERM"], uid: uid, gid: stage.OwnGroup(ids, uid, k.identity.GID),
		done: make(chan struct{}), shown: make(chan struct{}), windows: map[uint32]*sessionWindow{}}
	if k.config.record != "" {
		if s.record, err = openRecord(k.config.record); err != nil {
			return nil, err
		}
	}
	if s.listener, err = listenFor(filepath.Join(string(k.dir), state.SessionSocket), k.identity.GID); err != nil {
		return nil, fault.New(fault.Rules, "use --session never", "make the session's socket: %w", err)
	}
	return s, nil
}

// start begins to keep a server running, until stop.
func (s *sessionKeeper) start() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.keeper.update(func(st *state.State) {
		st.Session = state.Session{Name: s.name, Socket: filepath.Join(string(s.keeper.dir), state.SessionSocket), UID: s.uid}
	})
	go s.run(ctx)
}

// run starts servers, one after another.
func (s *sessionKeeper) run(ctx context.Context) {
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
		s.keeper.log.Error("the session server ended; the programs go on", "error", err, "restart_in", backoff)
		s.keeper.record(audit.Event{Kind: audit.Session, Verdict: audit.Fault, Reason: fmt.Sprintf("session server ended: %v; restart in %v", err, backoff)})
		s.keeper.update(func(st *state.State) { st.Session.OK, st.Session.Attached = false, 0; st.Session.Restarts++ })
		s.keeper.publish()
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
func (s *sessionKeeper) serve(ctx context.Context) error {
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
		stage.Kill(s.keeper.log, proc, syscall.SIGKILL)
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

// clipboard reports whether programs may write the clipboard of who looks at them.
func (k *keeper) clipboard() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.policy == nil || k.policy.Settings().Session.Clipboard
}

// spawn runs the server under its own uid. Its whole input is in a memfd.
func (s *sessionKeeper) spawn(channel *os.File) (*reaper.Process, error) {
	k := s.keeper
	cfg, err := wire.Memfd("session-config", stage.SessionConfig{Name: s.name, AgentUID: k.identity.UID, Clipboard: k.clipboard(), RecordLimit: k.config.recordLimit, LogLevel: k.config.level()})
	if err != nil {
		return nil, err
	}
	defer cfg.Close()
	files := []*os.File{cfg, channel, s.listener}
	return stage.Spawn(k.reaper, stage.Options{
		Spec: privdrop.Spec{
			Identity: s.identity(), Argv: []string{stage.Self, stage.SessionsName}, Env: []string{}, Dir: "/", Umask: 0o077,
			KeepFDs: len(files) + 1, DenyUserNS: true,
		},
		Files: files, Stderr: k.diagnostics(), Rank: stage.SessionGoes,
	})
}

// identity is whom the server and the client on the container's terminal run as.
func (s *sessionKeeper) identity() privdrop.Identity {
	return privdrop.Identity{UID: s.uid, GID: s.gid, Name: "agent-init-session", Home: "/", Shell: "/nonexistent"}
}

// ping finds a server that is alive and does nothing: stopped, or hung.
func (s *sessionKeeper) ping(ctx context.Context, ch *wire.SessionChannel) error {
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
	_ = os.Remove(filepath.Join(string(s.keeper.dir), state.SessionSocket))
}
