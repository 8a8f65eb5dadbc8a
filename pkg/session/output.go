package session

import (
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/protocol"
	"github.com/agent-init/agent-init/pkg/session/terminal"
)

// output gives what the program printed to the model, the record and every client.
func (w *window) output(b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = w.term.Write(b)
	w.printed = true
	w.steered = w.steered || terminal.Steers(b)
	if answers := w.term.Replies(); len(answers) > 0 && (w.leader == nil || !w.live(w.leader) || w.leader.queue.stale.Load()) {
		// Nobody's terminal answers. What does not fit at once is not waited for.
		w.master.writeNow(answers)
	}
	if w.record != nil {
		w.record.output(b)
	}
	for c := range w.clients {
		switch {
		case !w.live(c):
			c.queue.spoil()
		case !c.queue.stale.Load():
			if w.passing = c.filter.Write(w.passing[:0], b); len(w.passing) > 0 {
				c.fresh = c.fresh && !w.steered
				w.trace(c)
				c.queue.put(frame.Output, w.passing, true)
			}
		}
	}
	if cap(w.passing) > 4*readAtOnce {
		w.passing = nil
	}
}

// trace tells c what its terminal is to be rid of, should the server not live to do it.
func (w *window) trace(c *client) {
	if t := (traces{w.term.Traces(), c.titled}); c.traces != t && !c.plain {
		c.traces = t
		c.queue.put(frame.Traces, t.undo(), false)
	}
}

// live reports whether c gets the program's bytes as they are: a terminal of another size is shown the model instead.
// One that does not know its size is taken to be right. A notice stands above the model, too.
func (w *window) live(c *client) bool {
	cols, rows := w.term.Size()
	return c.plain || c.notice == "" && (c.cols == cols && c.rows == rows || c.cols == 0 || c.rows == 0)
}

func (w *window) show(c *client) {
	c.filter = w.term.Filter()
	c.filter.Clipboard, c.filter.Questions, c.filter.Plain = !c.readOnly && w.server.config.Clipboard, c == w.leader, c.plain
	cols, rows := c.cols, c.rows
	if cols == 0 || rows == 0 {
		cols, rows = w.term.Size()
	}
	if c.plain { // lines of text, to the cursor and no further
		lines := w.term.Text()
		_, y := w.term.Cursor()
		for len(lines) > y+1 && lines[len(lines)-1] == "" {
			lines = lines[:len(lines)-1]
		}
		c.queue.screen([]byte("\r\n" + strings.Join(lines, "\r\n")))
		return
	}
	if c.peer.local && c.fresh && !c.used && !w.printed && c.notice == "" {
		// It is there before the program. What the terminal shows may stay.
		c.queue.screen(nil)
		return
	}
	screen := append([]byte(terminal.CutOff), c.untitle()...)
	if !c.fresh {
		screen = append(screen, w.term.Reset()...)
	}
	screen = append(screen, w.term.Restore(cols, rows)...)
	if c.notice != "" {
		row := 1
		if _, y := w.term.Cursor(); y == 0 { // where somebody is typing
			row = rows
		}
		screen = c.above(screen, cols, row)
	}
	w.trace(c)
	c.queue.screen(screen)
	c.fresh = false
}

// add shows the window to c, first as it is, then as it goes on. It returns false if the window has ended.
func (w *window) add(c *client) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.clients == nil {
		return false
	}
	w.clients[c] = struct{}{}
	c.active = time.Now()
	w.server.notice.Load().show(c)
	c.queue.put(frame.Window, encode(w.infoLocked()), false)
	if !c.readOnly {
		w.lead(c)
	}
	c.queue.spoil()
	return true
}

// remove takes c away, and reports whether it was there.
func (w *window) remove(c *client) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.clients[c]; !ok {
		return false
	}
	delete(w.clients, c)
	w.reset(c)
	if w.leader != c {
		return true
	}
	w.leader = nil
	var next *client
	for other := range w.clients {
		if !other.readOnly && (next == nil || other.active.After(next.active)) {
			next = other
		}
	}
	if next != nil {
		w.lead(next)
	}
	return true
}

// reset brings c's terminal back to where a shell, or another window, expects it.
func (w *window) reset(c *client) {
	if !c.fresh && !c.plain {
		c.queue.put(frame.Screen, slices.Concat([]byte(terminal.CutOff), c.untitle(), w.term.Reset()), false)
	}
	c.fresh = true
	c.used = c.used || w.printed
}

// lead makes c the leader: its size is the window's, its terminal answers.
func (w *window) lead(c *client) {
	if old := w.leader; old != nil {
		old.filter.Questions = false
	}
	w.leader = c
	c.filter.Questions = true
	w.resize(c.cols, c.rows)
}

// resize gives the window another size. Clients of that size get the program's bytes, others the model.
func (w *window) resize(cols, rows int) {
	if oldCols, oldRows := w.term.Size(); cols < 1 || rows < 1 || cols == oldCols && rows == oldRows {
		return
	}
	w.term.Resize(cols, rows)
	cols, rows = w.term.Size()
	w.setSize(cols, rows)
	if w.record != nil {
		w.record.resize(cols, rows)
	}
	for c := range w.clients {
		if c != w.leader {
			c.queue.spoil()
		}
	}
}

func (w *window) setSize(cols, rows int) {
	_ = w.master.use(func(fd int) {
		_ = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(cols), Row: uint16(rows)})
	})
}

// resized notes the size of c's terminal. One that has it already has lost its screen.
func (w *window) resized(c *client, cols, rows int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.clients[c]; !ok {
		return
	}
	lost := c.cols == cols && c.rows == rows // the screen
	c.cols, c.rows = cols, rows
	if w.leader == c {
		w.resize(cols, rows)
	}
	if lost || w.leader != c || !w.live(c) { // larger than a window can be
		c.queue.spoil()
	}
}

// repaint makes the program draw its screen again: the model was lost.
func (w *window) repaint() {
	w.mu.Lock()
	cols, rows := w.term.Size()
	w.mu.Unlock()
	if rows == 1 {
		rows = 3
	}
	w.setSize(cols, rows-1)
	time.Sleep(repaintGap) // or the program would find nothing changed
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setSize(w.term.Size())
}

const repaintGap = 50 * time.Millisecond

func (w *window) ended() (ended bool, status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.exited, w.status
}

func (w *window) finish() {
	s := w.server
	s.mu.Lock()
	s.windows = slices.DeleteFunc(s.windows, func(other *window) bool { return other == w })
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.finishing--
	}()
	w.mu.Lock()
	clients, status := w.clients, w.status
	w.clients, w.leader = nil, nil
	for c := range clients {
		c.unring()
		if !w.live(c) || c.queue.stale.Load() { // it has not seen the last of it
			w.show(c)
		}
		w.reset(c)
	}
	if w.record != nil {
		w.record.close()
		w.record = nil
	}
	w.mu.Unlock()
	w.master.Close()
	for c := range clients {
		c.moving.Lock()
		if c.window == w {
			c.window = nil
			c.queue.put(frame.Ended, frame.Number(uint32(status)), false)
		}
		c.moving.Unlock()
	}
	s.changed()
}

func (w *window) info() protocol.WindowInfo {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.infoLocked()
}

func (w *window) infoLocked() protocol.WindowInfo {
	cols, rows := w.term.Size()
	i := protocol.WindowInfo{ID: w.id, Name: w.name, Title: w.term.Title(), Cwd: w.term.Cwd(), PID: w.pid, Cols: cols, Rows: rows,
		Started: w.begun, Clients: []protocol.ClientInfo{}}
	for c := range w.clients {
		i.Clients = append(i.Clients, protocol.ClientInfo{UID: c.peer.uid, PID: c.peer.pid, Attached: c.attached, Typed: c.typed,
			Read: c.readOnly, Leader: c == w.leader, Cols: c.cols, Rows: c.rows})
	}
	return i
}

// recordTo records the window from now on, beginning with the screen if an earlier record has what led to it.
func (w *window) recordTo(r *recorder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	cols, rows := w.term.Size()
	var screen []byte
	if w.record != nil {
		w.record.close()
		screen = w.term.Restore(cols, rows)
	} else {
		time.AfterFunc(flushEvery, w.flushRecord)
	}
	w.record, r.filter = r, w.term.Filter()
	r.header(cols, rows, w.server.config.Name+": "+w.name, screen)
}

func (w *window) flushRecord() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.record != nil { // the window has not ended
		w.record.flush()
		time.AfterFunc(flushEvery, w.flushRecord)
	}
}
