package session

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/agent-init/agent-init/pkg/session/internal/protocol"
	"github.com/agent-init/agent-init/pkg/session/terminal"
)

// Peer is who is at the other end of a connection, as the kernel says.
type Peer struct {
	UID   uint32
	PID   int
	Local bool // the client on the container's own terminal: PID is 0
}

// client is a connection to the server.
type client struct {
	server *Server
	peer   Peer
	queue  *queue

	// The rest belongs to the lock of the window that the client is attached
	// to, and to the client's own goroutine while it is attached to none.
	window     *window
	cols, rows int
	readOnly   bool
	plain      bool // its terminal knows text only
	attached   time.Time
	typed      time.Time // when input last came
	active     time.Time // when it attached or typed
	fresh      bool      // its terminal shows nothing of ours that would have to be undone
	used       bool      // it showed another window before, or this one
	filter     terminal.Filter
	traces     terminal.Traces // that it was told of
	moving     sync.Mutex
	gone       bool // belongs to moving: it looks at nothing any more
}

// serve handles the connection until it ends.
func (c *client) serve(conn *net.UnixConn) {
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		err := c.queue.run()
		if errors.Is(err, errStuck) {
			c.server.note(Event{Kind: EventPutOut, Peer: c.peer})
		}
		c.queue.close()
	}()
	err := c.read(conn)
	if err != nil {
		c.queue.put(protocol.KindError, []byte(err.Error()), false)
	}
	c.moving.Lock()
	c.gone = true // a window that it asked for may be on its way
	c.moving.Unlock()
	c.leave()
	c.queue.end()
	// What is queued is written, unless the client takes nothing.
	select {
	case <-finished:
	case <-time.After(stuckAfter):
	}
	c.queue.close()
	<-finished
}

// read handles what the client sends. Its error is for the client.
func (c *client) read(conn *net.UnixConn) error {
	frames := &protocol.FrameReader{R: conn}
	if !c.peer.Local {
		if err := conn.SetReadDeadline(time.Now().Add(helloTime)); err != nil {
			return nil
		}
	}
	for {
		k, payload, err := frames.Next()
		switch {
		case errors.Is(err, protocol.ErrFrame):
			return err
		case err != nil:
			return nil // it is gone, or has said nothing
		}
		if k == protocol.KindHello {
			if err := conn.SetReadDeadline(time.Time{}); err != nil {
				return nil
			}
			request, err := protocol.DecodeRequest(payload)
			if err != nil {
				return err
			}
			if again, err := c.answer(request); err != nil || !again {
				return err
			}
			continue
		}
		if err := c.handle(k, payload); err != nil {
			return err
		}
	}
}

// handle takes a frame of an attached client.
func (c *client) handle(k protocol.Kind, payload []byte) error {
	c.moving.Lock()
	w := c.window
	c.moving.Unlock()
	switch k {
	case protocol.KindInput:
		if w != nil {
			return w.input(c, payload)
		}
	case protocol.KindResize:
		cols, rows := protocol.DecodeSize(payload)
		if cols > protocol.MaxSide || rows > protocol.MaxSide {
			return errors.New("no terminal has that size")
		}
		if w != nil {
			w.resized(c, cols, rows)
		}
	case protocol.KindRedraw:
		if w != nil {
			c.queue.spoilt()
		}
	case protocol.KindDetach:
		c.leave()
		c.queue.put(protocol.KindDone, nil, false)
	case protocol.KindSwitch:
		if w != nil {
			return c.move(w, payload[0])
		}
	default:
		return protocol.ErrFrame
	}
	return nil
}

// move shows another window: the next, the previous, one by its number, or a
// new one.
func (c *client) move(from *window, where byte) error {
	var to *window
	switch {
	case where == 'c':
		if c.readOnly {
			return nil
		}
		c.server.open(c, Request{Verb: protocol.VerbAttach, Cols: c.cols, Rows: c.rows})
		return nil
	case where == 'n' || where == 'p':
		to = c.server.neighbour(from, where == 'n')
	case where >= '0' && where <= '9':
		to, _ = c.server.find(string(where))
	default:
		return protocol.ErrFrame
	}
	if to != nil && to != from {
		c.show(to)
	}
	return nil
}

// show attaches the client to w, and to no other.
func (c *client) show(w *window) {
	c.moving.Lock()
	defer c.moving.Unlock()
	if c.gone {
		return
	}
	if c.window != nil {
		c.window.remove(c)
	}
	c.window = w
	if !w.add(c) { // it has just ended
		c.window = nil
		c.queue.put(protocol.KindEnded, protocol.EncodeCode(w.code()), false)
	}
	c.server.changed()
}

// refresh draws the screen afresh.
func (c *client) refresh() {
	c.moving.Lock()
	w := c.window
	c.moving.Unlock()
	if w == nil {
		c.queue.drop()
		return
	}
	w.draw(c)
}

// leave detaches the client.
func (c *client) leave() {
	c.moving.Lock()
	w := c.window
	c.window = nil
	c.moving.Unlock()
	if w != nil && w.remove(c) {
		c.server.note(Event{Kind: EventDetach, Window: w.id, Peer: c.peer})
		c.server.changed()
	}
}

// answer does what a request asks for. The connection goes on if it attached.
func (c *client) answer(r Request) (again bool, err error) {
	s := c.server
	if r.Verb == protocol.VerbAttach {
		return true, c.attach(r)
	}
	switch r.Verb {
	case VerbList:
		return false, c.reply(s.info())
	case VerbNew:
		s.open(c, r)
		return true, nil // the answer comes when the keeper has started it
	}
	w, err := s.find(r.Window)
	if err != nil {
		return false, err
	}
	switch r.Verb {
	case VerbHistory:
		slots := s.histories[c.peer.UID == 0]
		select {
		case slots <- struct{}{}:
		case <-c.queue.done:
			return false, nil
		}
		defer func() { <-slots }()
		w.mu.Lock()
		history := w.term.History(r.Styles)
		w.mu.Unlock()
		_, err = answerWriter{c.queue}.Write(history)
	case VerbKill:
		s.note(Event{Kind: EventKill, Window: w.id, Peer: c.peer})
		err = s.config.Host.Kill(w.id)
	}
	if err == nil {
		c.queue.put(protocol.KindDone, nil, false)
	}
	return false, err
}

func (c *client) attach(r Request) error {
	w, err := c.server.find(r.Window)
	if err != nil {
		return err
	}
	if !r.Nested && c.server.inside(r.TTY) {
		return errNested
	}
	c.leave()
	c.readOnly, c.cols, c.rows, c.plain = r.Read, r.Cols, r.Rows, r.Plain
	c.attached = time.Now()
	c.server.note(Event{Kind: EventAttach, Window: w.id, Peer: c.peer, ReadOnly: r.Read})
	c.show(w)
	return nil
}

var errNested = errors.New("this terminal is a window of the session: it would show itself")

// answerWriter sends what is written as the answer to a request, as fast as
// the client takes it.
type answerWriter struct{ q *queue }

func (a answerWriter) Write(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		for !a.q.roomy() {
			select {
			case <-a.q.done:
				return n, io.ErrClosedPipe
			case <-time.After(answerLook):
			}
		}
		piece := b[n:min(len(b), n+protocol.MaxFromClient)]
		if !a.q.put(protocol.KindData, piece, false) {
			return n, io.ErrClosedPipe
		}
		n += len(piece)
	}
	return n, nil
}

const answerLook = 5 * time.Millisecond

// reply answers with v as JSON.
func (c *client) reply(v any) error {
	if _, err := (answerWriter{c.queue}).Write(protocol.EncodeJSON(v)); err != nil {
		return nil // it is gone
	}
	c.queue.put(protocol.KindDone, nil, false)
	return nil
}
