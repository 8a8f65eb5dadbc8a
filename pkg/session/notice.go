package session

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/internal/typed"
	"github.com/agent-init/agent-init/pkg/session/terminal"
)

// notice is a line of the keeper's for the people who look: something waits for them. It stands above the screen of a
// client, which is shown the model meanwhile, until a key is pressed. A new one is a new value.
type notice struct{ text string }

const (
	soundEvery  = 10 * time.Second // between two sounds, whatever is asked for meanwhile
	leastNotice = 2 * time.Second  // that a notice stays for somebody who is typing
)

// ring shows a notice to every client that looks, and takes it away if the text is empty. One that is said again stays
// what it was to those who have seen it.
func (s *Server) ring(words string) {
	words = text.Clean(words)
	s.mu.Lock()
	if old := s.notice.Load(); old != nil && old.text == words || old == nil && words == "" {
		s.mu.Unlock()
		return
	}
	n := &notice{words}
	s.notice.Store(n)
	sound := words != "" && time.Since(s.rang) > soundEvery
	if sound {
		s.rang = time.Now()
	}
	s.mu.Unlock()
	for _, w := range s.list() {
		w.mu.Lock()
		for c := range w.clients {
			c.ringing = sound
			n.show(c)
		}
		w.mu.Unlock()
	}
}

// show gives the notice to a client, unless that has seen it. The lock of its window is held.
func (n *notice) show(c *client) {
	if n == nil || c.noticed == n {
		return
	}
	c.noticed = n
	if c.plain {
		if n.text != "" {
			c.queue.put(frame.Output, []byte("\a\r\n[agent-init: "+n.text+"]\r\n"), true)
		}
		return
	}
	if c.notice == n.text {
		return // there is none, as before
	}
	if c.notice == "" {
		c.since = time.Now()
	}
	c.notice = n.text
	c.queue.spoil()
}

// see takes the notice away if b, which was typed, has a key in it. The lock of c's window is held.
func (c *client) see(b []byte) {
	if c.notice == "" || time.Since(c.since) < leastNotice {
		return
	}
	for seq := range typed.Sequences(b) {
		if !typed.IsReport(seq) && !typed.IsMouse(seq) {
			c.unring()
			c.queue.spoil()
			return
		}
	}
}

// seen takes the notice away: the person has asked for what it is about.
func (w *window) seen(c *client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.clients[c]; ok && c.notice != "" {
		c.unring()
		c.queue.spoil()
	}
}

func (c *client) unring() { c.notice, c.ringing = "", false }

// above adds the notice to what draws a screen of so many columns: a line on a row, and the title. Once, it makes a
// sound, and has the terminal notify (OSC 9). All of that is one update, so that nothing flickers.
func (c *client) above(screen []byte, columns, row int) []byte {
	const update = "\x1b[?2026l"
	screen = bytes.TrimSuffix(screen, []byte(update))
	if c.ringing {
		screen = fmt.Appendf(screen, "\a\x1b]9;agent-init: %s\x1b\\", c.notice)
		c.ringing = false
	}
	hint := ""
	if c.key != "" {
		hint = "  " + c.key + " "
	}
	room := columns - text.Columns(hint)
	if room < columns/2 {
		hint, room = "", columns
	}
	screen = fmt.Appendf(screen, "\x1b[22;2t\x1b]2;agent-init: %s\x1b\\", c.notice)
	c.titled = true
	// The cursor, its pen and the modes that move it are kept, and taken back.
	screen = fmt.Appendf(screen, "\x1b7\x1b[?6l\x1b[r\x1b(B\x0f\x1b[%dH\x1b[0;7m%s\x1b[0;1;7m%s\x1b[m\x1b8", row, text.Fit(" "+c.notice, room), hint)
	return append(screen, update...)
}

// untitle gives a terminal its title back, if it has the notice's.
func (c *client) untitle() []byte {
	if !c.titled {
		return nil
	}
	c.titled = false
	return []byte(takeTitle)
}

const takeTitle = "\x1b[23;2t"

// traces are what a client's terminal is to be rid of, should the server not live to do it.
type traces struct {
	programs terminal.Traces
	titled   bool
}

func (t traces) undo() []byte {
	if t.titled {
		return slices.Concat([]byte(takeTitle), t.programs.Undo())
	}
	return t.programs.Undo()
}
