package ui

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/creack/pty"
)

// The keys that leave a session (docs/sessions.md). The prefix is given with the command, whatever the container's is.
const (
	prefixName = "ctrl-]"
	leaveKeys  = "\x1dd"
)

// leaveTime is how long a client may take to leave. An engine doesn't end a command inside for the end of its own: one
// that is just cut off would stay in the container, and hold its window to a size that nobody has. Nobody waits for it
// but who ends the whole page.
const leaveTime = 10 * time.Second

// maxTyped bounds the messages that wait for a client that doesn't read them.
const maxTyped = 64

// attach shows a session on a terminal of the page's: what the client in the container writes goes to the page as it
// is, and what the page sends, to the client.
func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	c, ok := s.fleet.has(q.Get("container"))
	size := &pty.Winsize{Cols: side(q.Get("cols"), 80), Rows: side(q.Get("rows"), 24)}
	switch {
	case !isUpgrade(r):
		fail(w, http.StatusUpgradeRequired, "this is for a WebSocket of the page's")
		return
	case !ok || !c.Running:
		fail(w, http.StatusNotFound, "this container does not run any more")
		return
	}
	select {
	case s.terminals <- struct{}{}:
		defer func() { <-s.terminals }()
	default:
		fail(w, http.StatusServiceUnavailable, "too many terminals are open: close one")
		return
	}
	ws, err := upgrade(w, r)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx)) // a client is asked to leave before it is ended
	defer cancel()
	cmd, err := s.engine.Exec(ctx, true, c.ID, "attach", "--prefix", prefixName)
	if err != nil {
		ws.close(closeFault, clean(err.Error(), maxName))
		return
	}
	t, err := startTerminal(cmd, size)
	if err != nil {
		ws.close(closeFault, reasonOf(err))
		return
	}
	t.carry(s.ctx, ws, cancel)
}

// The codes that a socket is closed with (RFC 6455, section 7.4).
const (
	closeEnded = 1000
	closeFault = 1011
)

func reasonOf(err error) string {
	if errors.Is(err, pty.ErrUnsupported) {
		return "this system has no terminals for it: use agent-init launch --attach NAME"
	}
	return clean(err.Error(), maxName)
}

// maxSide bounds a terminal's size: no screen has more.
const maxSide = 1000

// side is one side of it.
func side(s string, preset uint16) uint16 {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return preset
	}
	return uint16(min(max(n, 2), maxSide))
}

// maxAhead bounds what is sent to a page before it has drawn it.
const maxAhead = 1 << 20

// terminal is a pseudo-terminal, and the client that runs on it.
type terminal struct {
	tty   *os.File
	typed chan []byte
	ended chan struct{} // the client has
	gone  chan struct{} // the page is
	ahead atomic.Int64  // bytes that were sent, and not yet drawn
	drawn chan struct{} // some were
}

func startTerminal(cmd *exec.Cmd, size *pty.Winsize) (*terminal, error) {
	cmd.Cancel = func() error { return end(cmd.Process) }
	tty, err := pty.StartWithSize(cmd, size)
	if err != nil {
		return nil, err
	}
	t := &terminal{
		tty: tty, typed: make(chan []byte, maxTyped), ended: make(chan struct{}), gone: make(chan struct{}), drawn: make(chan struct{}, 1),
	}
	go func() {
		defer close(t.ended)
		cmd.Wait()
	}()
	go func() { // apart from those who type: the client may not read
		for p := range t.typed {
			if _, err := tty.Write(p); err != nil {
				return
			}
		}
	}()
	return t, nil
}

// carry moves bytes between page and client until one of them ends, or ctx does.
func (t *terminal) carry(ctx context.Context, ws *socket, kill func()) {
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		t.show(ws)
		ws.close(closeEnded, "the session has let you go")
	}()
	go ws.beat(shown)
	stop := context.AfterFunc(ctx, func() { ws.close(closeEnded, "agent-init launch --ui has ended") })
	defer stop()
	t.take(ws)
	close(t.gone)
	ws.conn.Close()
	t.leave(kill)
	select {
	case <-shown:
	case <-time.After(leaveTime): // something in a group of its own holds the terminal
	}
	t.tty.Close()
}

// show sends what the client writes, as fast as the page draws it. Once the page is gone it reads on: a client that
// can't write could not leave.
func (t *terminal) show(ws *socket) {
	buf := make([]byte, 32<<10)
	for {
		n, err := t.tty.Read(buf)
		if n > 0 && ws.write(opBinary, buf[:n]) != nil {
			ws.conn.Close()
		}
		if err != nil {
			return
		}
		t.ahead.Add(int64(n))
		t.await()
	}
}

func (t *terminal) await() {
	for t.ahead.Load() > maxAhead {
		select {
		case <-t.drawn:
		case <-t.gone:
			return
		}
	}
}

// said is what a page says beside keys.
type said struct {
	Cols, Rows uint16 // its size now
	Drawn      int    // bytes since it said so last
}

// take takes what the page sends: keys as bytes, and what it says as text.
func (t *terminal) take(ws *socket) {
	for {
		op, message, err := ws.read()
		if err != nil {
			return
		}
		if op == opText {
			var p said
			if json.Unmarshal(message, &p) != nil {
				return
			}
			t.hear(p)
			continue
		}
		select {
		case t.typed <- message:
		case <-t.ended:
			return
		default:
			return // it has not read for long
		}
	}
}

func (t *terminal) hear(p said) {
	if p.Cols > 1 && p.Rows > 1 {
		pty.Setsize(t.tty, &pty.Winsize{Cols: min(p.Cols, maxSide), Rows: min(p.Rows, maxSide)})
	}
	if p.Drawn > 0 {
		t.ahead.Add(-min(int64(p.Drawn), t.ahead.Load()))
		select {
		case t.drawn <- struct{}{}:
		default:
		}
	}
}

// leave has the client leave the session, and ends it if it doesn't.
func (t *terminal) leave(kill func()) {
	late := time.NewTimer(leaveTime)
	defer late.Stop()
	select {
	case t.typed <- []byte(leaveKeys):
	default:
	}
	select {
	case <-t.ended:
	case <-late.C:
		kill()
		<-t.ended
	}
	close(t.typed)
}
