package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/session/internal/protocol"
)

// Limits on clients.
const (
	maxConnections   = 32 // of root, and of the agent's uid: neither can keep the other out
	maxWindows       = 16
	maxOpening       = 4
	helloTime        = 5 * time.Second // to say what is wanted
	historiesAtATime = 2
	screensAtATime   = 4 // drawn and not taken yet, of root's clients and of the agent's
)

// Server shows windows to clients. Its methods are safe for concurrent use.
type Server struct {
	config Config
	log    *slog.Logger

	mu          sync.Mutex
	windows     []*window    // by id
	finishing   int          // windows whose clients may not know yet that they have ended
	connections map[bool]int // by whether they are root's
	clients     map[*client]struct{}
	opening     map[uint32]opening
	lastRequest uint32
	records     map[uint32]RecordSpec // of windows that have yet to come
	ended       bool
	histories   map[bool]chan struct{}
	screens     map[bool]chan struct{}
}

// opening is a client that waits for a window.
type opening struct {
	client *client
	verb   protocol.Verb
}

// NewServer returns a server without windows.
func NewServer(c Config) *Server {
	log := c.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	slots := func(n int) map[bool]chan struct{} {
		return map[bool]chan struct{}{true: make(chan struct{}, n), false: make(chan struct{}, n)}
	}
	return &Server{config: c, log: log, connections: map[bool]int{}, clients: map[*client]struct{}{}, opening: map[uint32]opening{},
		records: map[uint32]RecordSpec{}, histories: slots(historiesAtATime), screens: slots(screensAtATime)}
}

// Serve accepts clients until ctx ends or the listener breaks.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		conn, err := l.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ECONNABORTED):
			time.Sleep(acceptPause)
			continue
		case err != nil:
			return fmt.Errorf("accept clients: %w", err)
		}
		go s.admit(conn)
	}
}

const acceptPause = 100 * time.Millisecond

// admit serves a connection if the kernel says that it comes from root or the
// agent.
func (s *Server) admit(conn *net.UnixConn) {
	known, err := control.PeerOf(conn)
	peer := Peer{UID: known.UID, PID: known.PID}
	if err != nil || peer.UID != 0 && peer.UID != s.config.AgentUID {
		conn.Close()
		return
	}
	if why := s.enter(peer.UID == 0); why != "" {
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_ = protocol.WriteFrame(conn, protocol.KindError, []byte(why))
		conn.Close()
		return
	}
	defer s.exit(peer.UID == 0)
	s.ServeConn(conn, peer)
}

// enter counts a connection, or says why there can be no other.
func (s *Server) enter(root bool) (why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return "the session has ended"
	case s.connections[root] >= maxConnections:
		return "too many clients: detach others first"
	}
	s.connections[root]++
	return ""
}

func (s *Server) exit(root bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connections[root]--
}

// ServeConn serves one client until it has gone. The caller has checked that
// the peer may.
func (s *Server) ServeConn(conn *net.UnixConn, peer Peer) {
	c := &client{server: s, peer: peer, fresh: true}
	var err error
	if c.queue, err = newQueue(conn, c.refresh, s.config.patience); err != nil {
		conn.Close()
		return
	}
	c.queue.slots = s.screens[peer.UID == 0]
	s.mu.Lock()
	s.clients[c] = struct{}{}
	s.mu.Unlock()
	c.serve(conn)
	s.mu.Lock()
	delete(s.clients, c)
	s.mu.Unlock()
}

// Add shows a window that was started.
func (s *Server) Add(spec WindowSpec) error {
	w, err := newWindow(s, spec)
	if err != nil {
		spec.Master.Close()
		s.mu.Lock()
		if record, ok := s.records[spec.ID]; ok {
			record.File.Close()
			delete(s.records, spec.ID)
		}
		s.mu.Unlock()
		return err
	}
	s.mu.Lock()
	s.windows = append(s.windows, w)
	s.finishing++
	slices.SortFunc(s.windows, func(a, b *window) int { return int(a.id) - int(b.id) })
	waiting, asked := s.opening[spec.Request]
	delete(s.opening, spec.Request)
	record, recorded := s.records[spec.ID]
	delete(s.records, spec.ID)
	s.mu.Unlock()
	if recorded {
		w.recordTo(s.newRecorder(record))
	}
	go w.run()
	if spec.Again {
		go w.repaint()
	}
	if asked {
		s.note(Event{Kind: EventNew, Window: w.id, Peer: waiting.client.peer})
		if waiting.verb == protocol.VerbAttach {
			waiting.client.show(w)
		} else {
			_ = waiting.client.reply(w.info())
			waiting.client.queue.end()
		}
	}
	s.changed()
	return nil
}

// Refused says that no window could be opened, and why.
func (s *Server) Refused(request uint32, why string) {
	s.mu.Lock()
	waiting, asked := s.opening[request]
	delete(s.opening, request)
	s.mu.Unlock()
	switch {
	case !asked:
	case waiting.verb == protocol.VerbAttach:
		waiting.client.queue.put(protocol.KindOutput, []byte{protocol.Bel}, true)
	default:
		waiting.client.queue.put(protocol.KindError, []byte(why), false)
		waiting.client.queue.end()
	}
}

// open asks the host for a new window on behalf of c.
func (s *Server) open(c *client, r Request) {
	s.mu.Lock()
	s.lastRequest++
	request := s.lastRequest
	why := ""
	switch {
	case len(s.windows)+len(s.opening) >= maxWindows:
		why = fmt.Sprintf("there are %d windows already: end one first", maxWindows)
	case len(s.opening) >= maxOpening:
		why = fmt.Sprintf("%d windows are being opened already: try again", maxOpening)
	}
	s.opening[request] = opening{c, r.Verb}
	s.mu.Unlock()
	if why != "" {
		s.Refused(request, why)
		return
	}
	if err := s.config.Host.Open(request, r); err != nil {
		s.Refused(request, err.Error())
	}
}

// Started says that the program of a window, which was shown before there was
// one, now runs.
func (s *Server) Started(id uint32, pid int) {
	if w := s.window(id); w != nil {
		w.mu.Lock()
		w.pid = pid
		w.mu.Unlock()
	}
}

// Exited says that the program of a window has ended.
func (s *Server) Exited(id uint32, code int) {
	if w := s.window(id); w != nil {
		w.exit(code)
	}
}

// window returns the window of that number, or nil.
func (s *Server) window(id uint32) *window {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.windows {
		if w.id == id {
			return w
		}
	}
	return nil
}

// Shutdown ends the session for every client, after what they are still to
// see. It returns when all have got it, or ctx ends.
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

// Record records a window, which may have yet to come, to a file from now on, and
// closes the file that it was recorded to before.
func (s *Server) Record(spec RecordSpec) {
	w := s.window(spec.Window)
	if w == nil {
		s.mu.Lock()
		s.records[spec.Window] = spec
		s.mu.Unlock()
		return
	}
	w.recordTo(s.newRecorder(spec))
}

func (s *Server) newRecorder(spec RecordSpec) *recorder {
	return newRecorder(spec, func() { s.config.Host.Full(spec.Window) }, func(err error) {
		s.log.Error("the window is no longer recorded", "window", spec.Window, "error", err)
		s.note(Event{Kind: EventRecordLost, Window: spec.Window})
	})
}

// find returns the window that a person means by its number or name; by
// nothing, the first.
func (s *Server) find(name string) (*window, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.windows {
		if name == "" || name == fmt.Sprint(w.id) {
			return w, nil
		}
	}
	for _, w := range s.windows {
		if name == w.name {
			return w, nil
		}
	}
	if name == "" {
		return nil, errors.New("there is no window left")
	}
	return nil, fmt.Errorf("there is no window %q", name)
}

// neighbour returns the window after w, or before.
func (s *Server) neighbour(w *window, next bool) *window {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, i := len(s.windows), slices.Index(s.windows, w)
	if i < 0 {
		return nil
	}
	if next {
		return s.windows[(i+1)%n]
	}
	return s.windows[(i+n-1)%n]
}

func (s *Server) finished() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishing--
}

func (s *Server) remove(w *window) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.windows = slices.DeleteFunc(s.windows, func(other *window) bool { return other == w })
}

// inside reports whether t is the terminal of one of the windows.
func (s *Server) inside(t protocol.TTY) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t != protocol.TTY{} && slices.ContainsFunc(s.windows, func(w *window) bool { return w.tty == t })
}

func (s *Server) info() Info {
	s.mu.Lock()
	windows := slices.Clone(s.windows)
	s.mu.Unlock()
	i := Info{Name: s.config.Name, Windows: []WindowInfo{}}
	for _, w := range windows {
		i.Windows = append(i.Windows, w.info())
	}
	return i
}

func (s *Server) note(e Event) { s.config.Host.Note(e) }

// changed tells the host how many windows and clients there are.
func (s *Server) changed() { s.config.Host.Changed(s.Count()) }

// Count returns how many windows there are, and how many clients are attached.
func (s *Server) Count() (windows, clients int) {
	s.mu.Lock()
	list := slices.Clone(s.windows)
	s.mu.Unlock()
	for _, w := range list {
		w.mu.Lock()
		clients += len(w.clients)
		w.mu.Unlock()
	}
	return len(list), clients
}
