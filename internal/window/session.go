// Package window keeps sessions as the keeper sees them: windows with their programs, the container's terminal, and
// records. It keeps a server running, which holds none of these.
package window

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/ids"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/state/ask"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/control"
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

	Record       audit.Recorder
	Update       func(func(*state.State)) // changes the state under its lock
	Publish      func()
	SocketOwners func() (map[uint32]bool, error) // the uids that own a socket of this network
	AgentSpec    func() privdrop.Spec            // how the agent is confined
	Shell        func() string                   // what a person gets who asks for no command
	Clipboard    func() bool                     // programs may write that of who looks at them
	Diagnostics  func() *os.File                 // where a child may write; nil: nowhere
}

// Session keeps one session server running, and owns what must outlive it: the windows, the listening socket and the
// record's file.
type Session struct {
	host     Host
	dir      string // where commands start
	uid, gid uint32 // the server's
	listener *os.File
	record   *recordFile // of the first window; nil: nothing is recorded
	console  *console    // nil: there is no terminal of the container's, or it is not ours
	service  *stage.Service
	shown    chan struct{} // closed when a client looks at the first window
	looked   sync.Once     // one does

	mu         sync.Mutex
	windows    map[uint32]*sessionWindow
	nextID     uint32
	over       bool          // the last window has ended
	live       *wire.Channel // of the server that serves now
	served     bool          // there was a server before
	seen       time.Time     // when the server last said something
	publishing bool          // soon
}

// New makes the listening socket. Nothing runs yet.
func New(k Host, dir string) (*Session, error) {
	uid, err := ids.ChooseUID("the session server", k.SocketOwners, k.Identity.UID, k.GuardUID)
	if err != nil {
		return nil, err
	}
	gid, err := ids.OwnGroup(uid, k.Identity.GID)
	if err != nil {
		return nil, err
	}
	s := &Session{host: k, dir: dir, uid: uid, gid: gid,
		shown: make(chan struct{}), windows: map[uint32]*sessionWindow{}}
	s.service = s.newService()
	if k.RecordTo != "" {
		if s.record, err = openRecord(k.RecordTo); err != nil {
			return nil, err
		}
	}
	// Without CAP_CHOWN, the socket's group is that of the thread that makes it.
	var l *net.UnixListener
	privdrop.FilesAs(-1, int(k.Identity.GID), func() { l, err = control.Listen(s.socket(), 0o660) })
	if err == nil {
		s.listener, err = l.File()
		l.Close()
	}
	if err != nil {
		return nil, fault.New(fault.Rules, "use --session never", "make the session's socket: %w", err)
	}
	return s, nil
}

func (s *Session) socket() string { return filepath.Join(string(s.host.Dir), ask.SessionSocket) }

// Begin starts the first window's command, shown on the container's terminal if in and out are one. It says to w how
// else it can be seen.
func (s *Session) Begin(ctx context.Context, argv []string, in, out *os.File, w io.Writer) (*reaper.Process, error) {
	if s.console = newConsole(s, in, out); s.console != nil {
		cols, rows := s.console.size()
		shown, err := s.openShown(ctx, argv, cols, rows)
		if err != nil {
			return nil, err
		}
		return shown.proc, nil
	}
	fmt.Fprintf(w, "agent-init: session %q is detached; %s shows it\n", s.host.Name, s.host.Elsewhere)
	first, err := s.open("", argv, 0, 0, 0)
	if err != nil {
		return nil, err
	}
	s.start()
	return first.proc, nil
}

// start begins to keep a server running, until Stop.
func (s *Session) start() {
	s.host.Update(func(st *state.State) {
		st.Session.Name, st.Session.Socket, st.Session.UID = s.host.Name, s.socket(), s.uid
	})
	s.service.Begin()
}

func (s *Session) newService() *stage.Service {
	return &stage.Service{
		Who: "the session server", Patience: sessionPatience, Log: s.host.Log,
		MaxText: sessionop.MaxText, Start: s.spawn, Serve: s.readRequests,
		Seen: func() time.Time {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.seen
		},
		Lost: func() (over bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.live = nil
			return s.over
		},
		Failed: func(err error, restart time.Duration) {
			s.host.Log.Error("the session server ended; the programs go on", "error", err, "restart_in", restart)
			s.note(audit.Fault, 0, "session server ended: %v; restart in %v", err, restart)
			s.host.Update(func(st *state.State) { st.Session.OK, st.Session.Attached = false, 0; st.Session.Restarts++ })
			s.host.Publish()
		},
	}
}

const sessionPatience = 10 * time.Second

func (s *Session) spawn(channel *os.File) (*reaper.Process, error) {
	k := s.host
	return stage.Spawn(k.Reaper, stage.Options{
		Spec:   s.own(stage.SessionsName),
		Config: stage.SessionConfig{Name: s.host.Name, AgentUID: k.Identity.UID, Clipboard: k.Clipboard(), RecordLimit: k.RecordLimit, LogLevel: k.LogLevel},
		Files:  []*os.File{channel, s.listener}, Stderr: k.Diagnostics(), Rank: stage.SessionGoes,
	})
}

// own is how the server and the client on the container's terminal run.
func (s *Session) own(argv ...string) privdrop.Spec {
	return stage.Own("session", s.uid, s.gid, argv...)
}

// Stop ends the session for whoever looks at it, then the server.
func (s *Session) Stop() {
	s.mu.Lock()
	s.over = true
	for _, w := range s.windows {
		if w.gone() {
			s.ended(w) // or the session would seem to end before its program
		}
	}
	s.tell(wire.Message{Op: sessionop.End}, nil)
	live := s.live != nil
	s.mu.Unlock()
	var patience time.Duration
	if live {
		patience = 2 * time.Second
	}
	s.service.Stop(patience)
	if s.console != nil {
		s.console.stop()
	}
	s.listener.Close()
	_ = os.Remove(s.socket())
}
