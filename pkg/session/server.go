// Package session keeps terminals alive while nobody looks at them. Its client is package attach.
//
// The Server runs without any privilege. It reads what two hostile sides write, the programs in the windows and the
// clients, and is built so that neither can hold up the other: each window is read by one goroutine that never waits
// for a client, and keeps a model of the screen (package terminal). A client that is slow loses its place in the
// stream and gets the screen as it is once it has caught up; one that reads nothing for ten seconds is put out.
//
// While a client keeps up and its terminal has the window's size, it gets the program's bytes untouched, but for
// requests to read the clipboard. Any other is shown the screen as the model has it.
//
// The window has the size of the client that typed last. That client, the leader, is also the one whose terminal
// answers the program's questions; the others don't see them, or each would answer.
package session

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

// Limits on clients.
const (
	maxConnections   = 32 // of root, and of the agent's uid: neither can keep the other out
	maxWindows       = 16
	maxOpening       = 4
	keptWindows      = 4               // of these, for clients of root's
	keptOpening      = 1               // likewise
	helloTime        = 5 * time.Second // to say what is wanted
	historiesAtATime = 2
	screensAtATime   = 4 // drawn and not taken yet, of root's clients and of the agent's
)

// Config is what a Server is made of.
type Config struct {
	Name        string   // of the session
	AgentUID    uint32   // who may connect, besides root
	Clipboard   bool     // programs may write the clipboard of those who may type (OSC 52)
	RecordLimit int64    // bytes of a record at which the keeper is told
	Top         []string // the command that shows the network, in a window of its own
	Log         *slog.Logger
	Tell        func(wire.Message) error // asks the keeper; from many goroutines

	scrollback int           // for tests; 0 means terminal's default
	patience   time.Duration // for tests; 0 means stuckAfter
}

// Server shows windows to clients. Its methods are safe for concurrent use.
type Server struct {
	config Config

	mu          sync.Mutex
	windows     []*window // by id
	finishing   int       // windows whose clients may not know yet that they have ended
	clients     map[*client]struct{}
	opening     map[uint64]opening
	lastRequest uint64
	records     map[uint32]*recorder // of windows that have yet to come
	ended       bool
	histories   map[bool]chan struct{}
	notice      atomic.Pointer[notice] // what clients are shown above their windows; nil: nothing ever was
	rang        time.Time              // when it last made a sound
	screens     map[bool]chan struct{}
}

type opening struct {
	client *client
	verb   string
}

// NewServer returns a server without windows.
func NewServer(c Config) *Server {
	slots := func(n int) map[bool]chan struct{} {
		return map[bool]chan struct{}{true: make(chan struct{}, n), false: make(chan struct{}, n)}
	}
	return &Server{config: c, clients: map[*client]struct{}{}, opening: map[uint64]opening{},
		records: map[uint32]*recorder{}, histories: slots(historiesAtATime), screens: slots(screensAtATime)}
}

// Serve accepts clients until ctx ends or the listener breaks.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	if err := budget.Accept(ctx, l, s.config.Log, func(c net.Conn) { go s.admit(c.(*net.UnixConn)) }); err != nil {
		return fmt.Errorf("accept clients: %w", err)
	}
	return ctx.Err()
}

// admit serves a connection if the kernel says that it comes from root or the agent.
func (s *Server) admit(conn *net.UnixConn) {
	defer conn.Close()
	known, err := control.PeerOf(conn)
	if err == nil && (known.UID == 0 || known.UID == s.config.AgentUID) {
		s.serveConn(conn, peer{uid: known.UID, pid: known.PID})
	}
}

// serveConn serves one client until it has gone, or refuses one too many. The caller has checked that the peer may.
func (s *Server) serveConn(socket *net.UnixConn, who peer) {
	defer socket.Close()
	conn, err := newStream(socket)
	if err != nil {
		s.config.Log.Error("serving a client", "error", err)
		return
	}
	c := &client{server: s, peer: who, fresh: true}
	c.queue = newQueue(conn, c.refresh, s.config.patience, s.screens[who.uid == 0])
	why, others := "", 0
	s.mu.Lock()
	for other := range s.clients {
		if !other.peer.local && (other.peer.uid == 0) == (who.uid == 0) {
			others++
		}
	}
	switch {
	case who.local: // the keeper's
	case s.ended:
		why = "the session has ended"
	case others >= maxConnections:
		why = "too many clients: detach others first"
	}
	if why == "" {
		s.clients[c] = struct{}{}
	}
	s.mu.Unlock()
	if why != "" {
		_, _ = conn.write(frame.Append(nil, frame.Error, []byte(why)), time.Now().Add(time.Second))
		return
	}
	c.serve(conn)
	s.mu.Lock()
	delete(s.clients, c)
	s.mu.Unlock()
}

// Take does what the keeper says, which file belongs to. It takes file over.
func (s *Server) Take(m wire.Message, file *os.File) {
	w := s.first(func(w *window) bool { return w.id == m.ID })
	switch {
	case m.Op == sessionop.Window && file != nil:
		if err := s.add(m, file); err != nil {
			s.config.Log.Error("showing a window", "error", err)
		}
		return
	case m.Op == sessionop.Record && file != nil:
		s.record(w, m, file)
		return
	case m.Op == sessionop.Client && file != nil:
		conn, err := net.FileConn(file)
		if socket, ok := conn.(*net.UnixConn); ok {
			go s.serveConn(socket, peer{local: true})
		} else if err == nil {
			conn.Close()
		}
	case m.Op == sessionop.Started && w != nil: // the program of a window, which was shown before there was one
		w.mu.Lock()
		w.pid = int(m.PID)
		w.mu.Unlock()
	case m.Op == sessionop.Exited && w != nil:
		w.mu.Lock()
		w.exited, w.status = true, int(m.Value)
		w.mu.Unlock()
		_ = w.master.SetReadDeadline(time.Now().Add(lastOutput))
	case m.Op == sessionop.Refused:
		s.refused(m.Arg, m.Text)
	case m.Op == sessionop.Notice:
		s.ring(m.Text)
	case m.Op == wire.OpPing:
		s.changed()
	}
	if file != nil {
		file.Close()
	}
}

func (s *Server) add(m wire.Message, master *os.File) error {
	w, err := newWindow(s, m, master)
	s.mu.Lock()
	record := s.records[m.ID]
	delete(s.records, m.ID)
	if err != nil {
		s.mu.Unlock()
		master.Close()
		if record != nil {
			record.file.Close()
		}
		return err
	}
	s.windows = append(s.windows, w)
	s.finishing++
	slices.SortFunc(s.windows, func(a, b *window) int { return int(a.id) - int(b.id) })
	waiting, asked := s.opening[m.Arg]
	delete(s.opening, m.Arg)
	s.mu.Unlock()
	if record != nil {
		w.recordTo(record)
	}
	go w.run()
	if m.Flag != 0 { // an earlier server had it
		go w.repaint()
	}
	if c := waiting.client; asked {
		c.note(sessionop.Opened, w.id)
		if waiting.verb == protocol.VerbAttach {
			c.show(w)
		} else {
			c.reply(encode(w.info()))
			c.queue.end()
		}
	}
	s.changed()
	return nil
}

func (s *Server) refused(request uint64, why string) {
	s.mu.Lock()
	waiting, asked := s.opening[request]
	delete(s.opening, request)
	s.mu.Unlock()
	switch {
	case !asked:
	case waiting.verb == protocol.VerbAttach:
		waiting.client.queue.put(frame.Output, []byte{'\a'}, true)
	default:
		waiting.client.queue.put(frame.Error, []byte(why), false)
		waiting.client.queue.end()
	}
}

func (s *Server) open(c *client, r protocol.Request) {
	s.mu.Lock()
	s.lastRequest++
	request := s.lastRequest
	windows, under := maxWindows, maxOpening
	if c.peer.uid != 0 {
		windows, under = windows-keptWindows, under-keptOpening
	}
	var err error
	switch {
	case len(s.windows)+len(s.opening) >= windows:
		err = fmt.Errorf("there are %d windows already: end one first", windows)
	case len(s.opening) >= under:
		err = fmt.Errorf("%d windows are being opened already: try again", under)
	}
	s.opening[request] = opening{c, r.Verb}
	s.mu.Unlock()
	if err == nil {
		err = s.config.Tell(wire.Message{Op: sessionop.Open, Arg: request, Cols: uint16(r.Cols), Rows: uint16(r.Rows), Text: sessionop.JoinCommand(r.Name, r.Argv)})
	}
	if err != nil {
		s.refused(request, err.Error())
	}
}

func (s *Server) first(meant func(*window) bool) *window {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.windows, meant); i >= 0 {
		return s.windows[i]
	}
	return nil
}

// Shutdown ends the session for every client, and returns when all have got what they are still to see, or ctx ends.
func (s *Server) Shutdown(ctx context.Context) {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	tick := time.NewTicker(answerLook)
	defer tick.Stop()
	for begun := time.Now(); ; {
		s.mu.Lock()
		windows, clients := s.finishing, len(s.clients)
		if windows == 0 || time.Since(begun) > 2*lastOutput {
			for c := range s.clients {
				c.queue.end()
			}
		}
		s.mu.Unlock()
		if windows == 0 && clients == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// record records a window to a file from now on, or from when it comes.
func (s *Server) record(w *window, m wire.Message, file *os.File) {
	r := &recorder{file: file, out: bufio.NewWriterSize(file, 64<<10), begun: time.Unix(0, m.Value), size: int64(m.Arg), limit: s.config.RecordLimit}
	r.full = func() { s.tell(wire.Message{Op: sessionop.Full, ID: m.ID}) }
	r.broke = func(err error) {
		s.config.Log.Error("the window is no longer recorded", "window", m.ID, "error", err)
		s.tell(wire.Message{Op: sessionop.Noted, Flag: uint8(sessionop.RecordLost), ID: m.ID})
	}
	if w != nil {
		w.recordTo(r)
		return
	}
	s.mu.Lock()
	s.records[m.ID] = r
	s.mu.Unlock()
}

// find returns the window that a person means by its number or name; by nothing, the first.
func (s *Server) find(name string) (*window, error) {
	w := s.first(func(w *window) bool { return name == "" || name == fmt.Sprint(w.id) })
	if w == nil {
		w = s.first(func(w *window) bool { return name == w.name })
	}
	switch {
	case w != nil:
		return w, nil
	case name == "":
		return nil, errors.New("there is no window left")
	}
	return nil, fmt.Errorf("there is no window %q", name)
}

// neighbour returns the window that is step from w: 1 or -1.
func (s *Server) neighbour(w *window, step int) *window {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.windows, w); i >= 0 {
		return s.windows[(i+step+len(s.windows))%len(s.windows)]
	}
	return nil
}

func (s *Server) info() protocol.Info {
	i := protocol.Info{Name: s.config.Name, Windows: []protocol.WindowInfo{}}
	for _, w := range s.list() {
		i.Windows = append(i.Windows, w.info())
	}
	return i
}

func (s *Server) changed() {
	windows, clients := s.list(), 0
	for _, w := range windows {
		w.mu.Lock()
		clients += len(w.clients)
		w.mu.Unlock()
	}
	s.tell(wire.Message{Op: wire.OpPong, Arg: uint64(len(windows)), Value: int64(clients)})
}

func (s *Server) list() []*window {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.windows)
}

func (s *Server) tell(m wire.Message) {
	if err := s.config.Tell(m); err != nil {
		s.config.Log.Debug("telling the keeper", "error", err)
	}
}
