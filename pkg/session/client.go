package session

import (
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/protocol"
	"github.com/agent-init/agent-init/pkg/session/terminal"
)

// peer is who is at the other end of a connection, as the kernel says.
type peer struct {
	uid   uint32
	pid   int
	local bool // the client on the container's own terminal: pid is 0
}

type client struct {
	server *Server
	peer   peer
	queue  *queue

	// The rest is under the lock of the client's window, or its goroutine's own while it has none.
	window     *window
	cols, rows int
	readOnly   bool
	plain      bool   // its terminal knows text only
	key        string // that shows what a notice is about; empty: none
	attached   time.Time
	typed      time.Time // when input last came
	active     time.Time // when it attached or typed
	fresh      bool      // its terminal shows nothing of ours that would have to be undone
	used       bool      // it showed another window before, or this one
	filter     terminal.Filter
	traces     traces    // that it was told of
	notice     string    // that stands above the screen; empty: none
	noticed    *notice   // that it was given last
	ringing    bool      // it is still to be rung for
	since      time.Time // when it first stood there
	titled     bool      // it is the title, too
	moving     sync.Mutex
	gone       bool // belongs to moving: it looks at nothing any more
}

func (c *client) serve(conn *stream) {
	go func() {
		if errors.Is(c.queue.run(), errStuck) {
			c.note(sessionop.PutOut, 0)
		}
		c.queue.close()
	}()
	if err := c.read(conn); err != io.EOF {
		c.queue.put(frame.Error, []byte(err.Error()), false)
	}
	c.moving.Lock()
	c.gone = true // a window that it asked for may be on its way
	c.moving.Unlock()
	c.leave()
	c.queue.end()
	// What is queued is written, unless the client takes nothing.
	select {
	case <-c.queue.done:
	case <-time.After(stuckAfter):
	}
	c.queue.close()
}

// read handles what the client sends. Its error is for the client, or io.EOF.
func (c *client) read(conn *stream) error {
	frames := &frame.Reader{R: conn}
	if !c.peer.local && conn.SetReadDeadline(time.Now().Add(helloTime)) != nil {
		return io.EOF
	}
	for {
		k, payload, err := frames.Next()
		switch {
		case errors.Is(err, frame.ErrMalformed):
			return err
		case err != nil || k == frame.Hello && conn.SetReadDeadline(time.Time{}) != nil:
			return io.EOF // it is gone, or has said nothing
		case k == frame.Hello:
			var request protocol.Request
			if request, err = protocol.DecodeRequest(payload); err == nil {
				err = c.answer(request)
			}
		default:
			err = c.handle(k, payload)
		}
		if err != nil {
			return err
		}
	}
}

func (c *client) handle(k frame.Kind, payload []byte) error {
	c.moving.Lock()
	w := c.window
	c.moving.Unlock()
	switch {
	case k == frame.Resize:
		size := frame.NumberOf(payload)
		cols, rows := int(size>>16), int(size&0xffff)
		if cols > protocol.MaxSide || rows > protocol.MaxSide {
			return errors.New("no terminal has that size")
		}
		if w != nil {
			w.resized(c, cols, rows)
		}
	case k == frame.Detach:
		c.leave()
		c.queue.put(frame.Done, nil, false)
	case k == frame.Ask:
		return c.tell(w, payload[0])
	case k != frame.Input && k != frame.Switch && k != frame.Seen:
		return frame.ErrMalformed
	case w == nil: // without a window, they mean nothing
	case k == frame.Seen:
		w.seen(c)
	case k == frame.Input:
		w.input(c, payload)
	default:
		return c.move(w, payload[0])
	}
	return nil
}

// move shows another window: the next, the previous, one by its number, a new one, or the one that shows the network. Or
// it ends the present one.
func (c *client) move(from *window, where byte) error {
	var to *window
	switch {
	case where == 'c':
		if c.readOnly {
			return nil
		}
		c.server.open(c, protocol.Request{Verb: protocol.VerbAttach, Cols: c.cols, Rows: c.rows})
		return nil
	case where == 't':
		if to, _ = c.server.find(topWindow); to != nil || c.readOnly {
			break
		}
		c.server.open(c, protocol.Request{Verb: protocol.VerbAttach, Name: topWindow, Argv: c.server.config.Top, Cols: c.cols, Rows: c.rows})
		return nil
	case where == 'x':
		if c.readOnly {
			return nil
		}
		c.note(sessionop.KillAsked, from.id)
		return c.server.config.Tell(wire.Message{Op: sessionop.Kill, ID: from.id})
	case where == 'n':
		to = c.server.neighbour(from, 1)
	case where == 'p':
		to = c.server.neighbour(from, -1)
	case where >= '0' && where <= '9':
		to, _ = c.server.find(string(where))
	default:
		return frame.ErrMalformed
	}
	if to != nil && to != from {
		c.show(to)
	}
	return nil
}

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
		_, status := w.ended()
		c.queue.put(frame.Ended, frame.Number(uint32(status)), false)
	}
	c.server.changed()
}

func (c *client) refresh() {
	c.moving.Lock()
	w := c.window
	c.moving.Unlock()
	if w == nil {
		c.queue.stale.Store(false) // it looks at none
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.clients[c]; ok {
		w.show(c)
	}
}

func (c *client) leave() {
	c.moving.Lock()
	w := c.window
	c.window = nil
	c.moving.Unlock()
	if w != nil && w.remove(c) {
		c.note(sessionop.Detached, w.id)
		c.server.changed()
	}
}

// answer does what a request asks for. It returns io.EOF unless the connection goes on.
func (c *client) answer(r protocol.Request) error {
	s := c.server
	switch r.Verb {
	case protocol.VerbList:
		c.reply(encode(s.info()))
		return io.EOF
	case protocol.VerbNew:
		s.open(c, r)
		return nil // the answer comes when the keeper has started it
	}
	w, err := s.find(r.Window)
	if err != nil {
		return err
	}
	switch r.Verb {
	case protocol.VerbAttach:
		inside := func(w *window) bool { return r.TTY != protocol.TTY{} && w.tty == r.TTY }
		if !r.Nested && s.first(inside) != nil {
			return errors.New("this terminal is a window of the session: it would show itself")
		}
		c.leave()
		c.readOnly, c.cols, c.rows, c.plain, c.key = r.Read, r.Cols, r.Rows, r.Plain, r.Key
		c.attached = time.Now()
		c.note(sessionop.Attached, w.id)
		c.show(w)
		return nil
	case protocol.VerbHistory:
		c.history(w, r.Styles, c.reply)
	case protocol.VerbKill:
		c.note(sessionop.KillAsked, w.id)
		if err := s.config.Tell(wire.Message{Op: sessionop.Kill, ID: w.id}); err != nil {
			return err
		}
		c.reply(nil)
	}
	return io.EOF
}

// history calls give with what a window has shown, when it is this client's turn.
func (c *client) history(w *window, styles bool, give func([]byte)) {
	slots := c.server.histories[c.peer.uid == 0]
	select {
	case slots <- struct{}{}:
	case <-c.queue.done:
		return
	}
	defer func() { <-slots }()
	w.mu.Lock()
	history := w.term.History(styles)
	w.mu.Unlock()
	give(history)
}

// tell answers what a client that looks at w wants to know besides: the windows, or what w has shown.
func (c *client) tell(w *window, what byte) error {
	switch {
	case what == frame.AskWindows:
		c.say(frame.Answer, encode(c.server.info()))
	case what != frame.AskHistory:
		return frame.ErrMalformed
	case w != nil:
		c.history(w, false, func(b []byte) { c.say(frame.Answer, b) })
	}
	c.queue.put(frame.Answer, nil, false)
	return nil
}

// reply answers a request, and says that this was all.
func (c *client) reply(b []byte) {
	c.say(frame.Output, b)
	c.queue.put(frame.Done, nil, false)
}

// say sends frames of a kind, as fast as the client takes them.
func (c *client) say(k frame.Kind, b []byte) {
	for len(b) > 0 {
		for !c.queue.roomy() {
			select {
			case <-c.queue.done:
				return
			case <-time.After(answerLook):
			}
		}
		n := min(len(b), answerPiece)
		c.queue.put(k, b[:n], false)
		b = b[n:]
	}
}

const topWindow = "top" // its name

const (
	answerPiece = 64 << 10
	answerLook  = 5 * time.Millisecond
)

// encode is the JSON of a value of ours: nothing in it can fail.
func encode(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}

func (c *client) note(what sessionop.Event, window uint32) {
	m := wire.Message{Op: sessionop.Noted, Flag: uint8(what), ID: window, UID: c.peer.uid, PID: uint32(c.peer.pid)}
	if what == sessionop.Attached && c.readOnly {
		m.Arg = 1
	}
	c.server.tell(m)
}
