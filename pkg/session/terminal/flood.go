package terminal

import "bytes"

// flood takes lines of plain text that p begins with, and that nobody will see: as many rows follow as the screen has.
// They go into the history as they are, cut at its width, for to draw and to read back each cell takes ten times as long.
// It returns how much of p it took, and how much needs no second look.
//
// It is called behind a line feed. What it leaves of p brings the screen to where it would be.
func (t *Terminal) flood(p []byte) (taken, looked int) {
	last := t.rows - 1
	if t.sync(); t.cur.x > 0 || t.cur.y < last || t.top > 0 || t.bottom < last || t.scr != t.main || !t.literal() ||
		t.penID != 0 || t.scr.rows[last].wrapped || !t.scr.rows[last].empty() {
		return 0, 0
	}
	rows := -last // that scroll away
	for {
		n := printable(p[looked:])
		if !bytes.HasPrefix(p[looked+n:], []byte("\r\n")) || n > t.cols && !t.modes.has(modeAutowrap) {
			break
		}
		looked += n + len("\r\n")
		rows += t.rowsOf(n)
	}
	if rows <= 0 {
		return 0, looked
	}
	for _, r := range t.scr.rows[:last] {
		t.keep(r)
		r.clear(space)
	}
	for h := &t.history; rows > 0; {
		n := bytes.IndexByte(p[taken:], '\r')
		if rows -= t.rowsOf(n); rows < 0 {
			break // some rows of a wrapped line stay
		}
		line := p[taken : taken+n]
		for ; len(line) > t.cols; line = line[t.cols:] {
			h.text = append(append(h.text, line[:t.cols]...), goesOn...)
			h.added()
		}
		h.text = append(append(h.text, bytes.TrimRight(line, " ")...), '\n')
		h.added()
		taken += n + len("\r\n")
	}
	t.cur.y = 0
	return taken, looked
}

// rowsOf is how many rows a line of n characters takes.
func (t *Terminal) rowsOf(n int) int { return max(1, (n+t.cols-1)/t.cols) }
