// Package window keeps sessions as the keeper sees them: windows with their programs, the container's terminal, and
// records. It keeps a server running, which holds none of these.
package window

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

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
	Taken    []uint32          // uids that others have

	Name      string
	Term      string // TERM of the container; empty: none that programs can use
	Prefix    string // key of the client on the container's terminal
	Elsewhere string // the command that attaches from outside

	SignalTarget string // for signals to a window's program, see stage.SignalGroups
	RecordTo     string // a file, or empty
	RecordLimit  int64  // bytes

	Record       audit.Recorder
	Update       func(func(*state.State)) // changes the state under its lock
	Publish      func()
	SocketOwners func() (map[uint32]bool, error) // the uids that own a socket of this network
	AgentSpec    func() privdrop.Spec            // how the agent is confined
	Shell        func() string                   // what a person gets who asks for no command
	Clipboard    func() bool                     // programs may write that of who looks at them
	Diagnostics  func() *os.File                 // where a child may write; nil: nowhere

	// Decide does what the person at the container's terminal says to requests of the agent's; nil: there are none.
	Decide func(context.Context, control.Peer, control.Request) control.Reply
}

// Session keeps one session server running, and owns what outlives it: windows, listening socket and record.
type Session struct {
	host     Host
	dir      string // where commands start
	uid, gid uint32 // the server's
	listener *os.File
	record   *recordFile // of the first window; nil: nothing is recorded
	console  *console    // nil: there is no terminal of the container's, or it is not ours
	service  *stage.Service
	shown    context.Context // ends when a client looks at the first window
	look     func()          // ends shown

	mu         sync.Mutex
	windows    map[uint32]*sessionWindow
	nextID     uint32
	over       bool          // the last window has ended
	live       *wire.Channel // of the server that serves now
	served     bool          // there was a server before
	seen       time.Time     // when the server last said something
	publishing bool          // soon

	notice atomic.Pointer[string] // what clients are to be shown; nil or empty: nothing
}

// New makes the listening socket. Nothing runs yet.
func New(k Host, dir string) (*Session, error) {
	uid, err := ids.ChooseUID("the session server", k.SocketOwners, append(k.Taken, k.Identity.UID)...)
	if err != nil {
		return nil, err
	}
	gid, err := ids.OwnGroup(uid, k.Identity.GID)
	if err != nil {
		return nil, err
	}
	s := &Session{host: k, dir: dir, uid: uid, gid: gid, windows: map[uint32]*sessionWindow{}}
	s.shown, s.look = context.WithCancel(context.Background())
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

// Begin starts the first window, shown on the container's terminal if in and out are one, and tells w how else to see
// it.
func (s *Session) Begin(ctx context.Context, argv []string, in, out *os.File, w io.Writer) (*reaper.Process, error) {
	c, err := newConsole(s, in, out)
	if err != nil {
		return nil, err
	}
	if s.console = c; c != nil {
		size, _ := unix.IoctlGetWinsize(int(in.Fd()), unix.TIOCGWINSZ) // zero where it has none
		return s.openShown(ctx, argv, size.Col, size.Row)
	}
	fmt.Fprintf(w, "agent-init: session %q is detached; %s shows it\n", s.host.Name, s.host.Elsewhere)
	first, err := s.open("", argv, 0, 0, 0)
	if err == nil {
		s.start()
	}
	return first, err
}

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
		Spec:   stage.Own("session", s.uid, s.gid, stage.SessionsName),
		Config: stage.SessionConfig{Name: s.host.Name, AgentUID: k.Identity.UID, Clipboard: k.Clipboard(), RecordLimit: k.RecordLimit, LogLevel: k.LogLevel},
		Files:  []*os.File{channel, s.listener}, Stderr: k.Diagnostics(), Rank: stage.SessionGoes,
	})
}

// Notice has every client that looks show a line of text, and ring for it; an empty one takes the line away. It waits
// for nobody, and may be called before there is a server: the last text counts.
func (s *Session) Notice(text string) {
	s.notice.Store(&text)
	go func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ring()
	}()
}

// ring tells the server the last notice. The lock is held.
func (s *Session) ring() {
	if text := s.notice.Load(); text != nil {
		s.tell(wire.Message{Op: sessionop.Notice, Text: (*text)[:min(len(*text), maxNotice)]}, nil)
	}
}

const maxNotice = 1 << 10 // bytes; which is more than a line has

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
	var patience time.Duration
	if s.live != nil {
		patience = 2 * time.Second
	}
	s.mu.Unlock()
	s.service.Stop(patience)
	if s.console != nil {
		s.console.stop()
	}
	s.listener.Close()
	_ = os.Remove(s.socket())
}

// readRequests serves what the server asks. It may be taken over: it gets no more than the agent has.
func (s *Session) readRequests(_ context.Context, ch *wire.Channel) error {
	for {
		m, file, err := ch.Receive()
		if file != nil {
			file.Close() // the server has none to give
		}
		switch {
		case errors.Is(err, wire.ErrMalformed):
			return errors.New("the session server sent a malformed message")
		case err != nil:
			return fmt.Errorf("the session server closed its channel: %w", err)
		}
		s.mu.Lock()
		s.seen = time.Now()
		s.mu.Unlock()
		switch m.Op {
		case wire.OpReady:
			s.serving(ch)
		case wire.OpPong:
			s.counted(int(m.Arg), int(m.Value))
		case sessionop.Open:
			s.openFor(m)
		case sessionop.Kill:
			s.kill(m.ID)
		case sessionop.Full:
			s.rotateRecord(m.ID)
		case sessionop.Noted:
			s.recordEvent(m)
		default:
			return errors.New("the session server sent an unknown request")
		}
	}
}

// serving hands over what there is. The lock is held throughout, so that every window is handed over once.
func (s *Session) serving(ch *wire.Channel) {
	s.mu.Lock()
	s.live = ch
	for id := range s.nextID {
		if w := s.windows[id]; w != nil {
			s.hand(w, 0, s.served)
		}
	}
	s.ring()
	s.tell(wire.Message{Op: wire.OpReady}, nil)
	again := s.served
	s.served = true
	if s.over {
		s.tell(wire.Message{Op: sessionop.End}, nil)
	}
	s.mu.Unlock()
	s.host.Update(func(st *state.State) { st.Session.OK = true })
	if again {
		s.note(audit.Info, 0, "session server serves again")
	}
	s.host.Publish()
	if s.console != nil {
		s.console.connect(ch)
	}
}

func (s *Session) note(v audit.Verdict, pid int, reason string, args ...any) {
	s.host.Record(audit.Event{Kind: audit.Session, Verdict: v, PID: pid, Reason: fmt.Sprintf(reason, args...)})
}

// tell sends a message to the server, if there is one, with a file or nil. The lock is held.
func (s *Session) tell(m wire.Message, file *os.File) {
	if s.live == nil {
		return
	}
	if err := s.live.Send(m, file); err != nil {
		s.host.Log.Debug("telling the session server", "error", err)
	}
}

func (s *Session) openFor(m wire.Message) {
	name, argv, err := sessionop.SplitCommand(m.Text)
	if err == nil && name != "" {
		err = sessionop.CheckName(name)
	}
	if len(argv) == 0 {
		argv = []string{s.host.Shell()}
	}
	if err == nil {
		_, err = s.open(name, argv, m.Cols, m.Rows, m.Arg)
	}
	if err != nil {
		s.mu.Lock()
		s.tell(wire.Message{Op: sessionop.Refused, Arg: m.Arg, Text: err.Error()}, nil)
		s.mu.Unlock()
	}
}

func (s *Session) counted(windows, clients int) {
	if clients > 0 {
		s.look()
	}
	changed := false
	s.host.Update(func(st *state.State) {
		changed = st.Session.Windows != windows || st.Session.Attached != clients
		st.Session.Windows, st.Session.Attached = windows, clients
	})
	if changed {
		s.publishSoon()
	}
}

// publishSoon publishes what has changed, a few times a second at most.
func (s *Session) publishSoon() {
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
		s.host.Publish()
	})
}

const publishWithin = 200 * time.Millisecond

var sessionEvents = map[sessionop.Event]string{
	sessionop.Attached:  "attached to window %d",
	sessionop.Detached:  "detached from window %d",
	sessionop.Opened:    "opened window %d",
	sessionop.KillAsked: "asked to end window %d",
	sessionop.PutOut:    "client put out, it took nothing: window %d",
}

func (s *Session) recordEvent(m wire.Message) {
	if sessionop.Event(m.Flag) == sessionop.RecordLost {
		s.note(audit.Fault, 0, "the record of window %d can't be written: it ends here", m.ID)
		return
	}
	text, ok := sessionEvents[sessionop.Event(m.Flag)]
	if !ok {
		return
	}
	e := audit.Event{Kind: audit.Session, Verdict: audit.Info, UID: &m.UID, PID: int(m.PID), Reason: fmt.Sprintf(text, m.ID)}
	if m.Arg != 0 {
		e.Reason += ", read-only"
	}
	if m.PID == 0 {
		e.Reason += ", from the container's terminal"
	}
	s.host.Record(e)
}
