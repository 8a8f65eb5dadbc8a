package terminal

import (
	"slices"
	"unicode/utf8"
)

// literal reports whether ASCII stands for itself, and moves nothing.
func (t *Terminal) literal() bool {
	c := &t.cur
	return c.charset[c.gl] == 'B' && c.single == 0 && !t.modes.has(modeInsert)
}

// ascii shows a run of printable ASCII.
func (t *Terminal) ascii(p []byte) {
	c := &t.cur
	if !t.literal() {
		for _, b := range p {
			t.print(rune(b))
		}
		return
	}
	t.sync()
	t.last = rune(p[len(p)-1])
	style := t.penID
	for len(p) > 0 {
		if c.pending {
			t.wrap()
		}
		n := min(len(p), t.cols-c.x)
		if n < len(p) && !t.modes.has(modeAutowrap) {
			// Each further character overwrites the last column.
			p = append(p[:n-1:n-1], p[len(p)-1])
		}
		r, end := t.scr.rows[c.y], c.x+n
		r.part(c.x)
		r.part(end)
		if r.grow(c.x); len(r.cells) < end {
			r.cells = slices.Grow(r.cells, end-len(r.cells))[:end]
		}
		dst := r.cells[c.x:end]
		for i, b := range p[:n] {
			dst[i] = cell{uint32(b), style}
		}
		p = p[n:]
		t.advance(n)
	}
}

func (t *Terminal) advance(n int) {
	t.cur.x += n
	if t.cur.x >= t.cols {
		t.cur.x = t.cols - 1
		t.cur.pending = t.modes.has(modeAutowrap)
	}
}

func (t *Terminal) wrap() {
	// On the last row below the scroll region it overwrites the row itself.
	t.scr.rows[t.cur.y].wrapped = t.cur.y == t.bottom || t.cur.y < t.rows-1
	t.cur.x, t.cur.pending = 0, false
	t.index()
}

func (t *Terminal) print(r rune) {
	if r < utf8.RuneSelf {
		r = t.translate(byte(r))
	}
	t.cur.single = 0
	if w := width(r); w >= 0 {
		t.show(r, w)
	}
}

// show shows a character, as part of the one before it or for itself.
func (t *Terminal) show(r rune, w int) {
	if !t.combine(r, w) {
		t.last = r
		t.put(r, w)
	}
}

// put shows a character that stands for itself, w columns wide.
func (t *Terminal) put(r rune, w int) {
	c := &t.cur
	if w > t.cols {
		return
	}
	t.sync()
	if c.pending {
		t.wrap()
	}
	if c.x+w > t.cols { // the second half would not fit
		if !t.modes.has(modeAutowrap) {
			c.x = t.cols - w
		} else {
			row := t.scr.rows[c.y]
			row.part(c.x)
			row.grow(t.cols)
			row.cells[c.x] = cell{text: padding}
			t.wrap()
		}
	}
	row := t.scr.rows[c.y]
	if t.modes.has(modeInsert) {
		row.insert(c.x, w, t.cols, t.blank)
	}
	row.part(c.x)
	row.part(c.x + w)
	row.grow(c.x + w)
	row.cells[c.x] = cell{uint32(r), t.penID}
	if w == 2 {
		row.cells[c.x+1] = cell{tail, t.penID}
	}
	t.advance(w)
}

// combine adds r to the character before the cursor if it belongs there. It reports
// whether r has been dealt with: one without a width never stands for itself.
func (t *Terminal) combine(r rune, w int) bool {
	c, row := &t.cur, t.scr.rows[t.cur.y]
	x := c.x
	if !c.pending {
		x--
	}
	x = row.start(x)
	if x < 0 || x >= len(row.cells) {
		return w == 0
	}
	at := &row.cells[x]
	if w > 0 && !isModifier(r) && !isRegional(r) && (r < utf8.RuneSelf || at.text&cluster == 0) {
		return false
	}
	base := t.text(*at)
	if base == "" || w > 0 && !joins(base, r) || len(base)+utf8.RuneLen(r) > clusterMax {
		return w == 0
	}
	widens := columns(row.cells, x) == 1 && (w > 0 || r == emojiStyle)
	if widens && x+2 > t.cols {
		return !isRegional(r) // no room: only the halves of a flag can stand alone
	}
	at.text = t.packText(base + string(r))
	if widens {
		row.part(x + 2)
		row.grow(x + 2)
		row.cells[x+1] = cell{tail, row.cells[x].style}
		t.advance(1)
	}
	return true
}

// translate returns what an ASCII character stands for in the chosen set.
func (t *Terminal) translate(b byte) rune {
	set := t.cur.charset[t.cur.gl]
	if t.cur.single != 0 {
		set = t.cur.charset[t.cur.single]
	}
	switch {
	case set == '0' && b >= 0x5f && b < 0x7f:
		return lineDrawing[b-0x5f]
	case set == 'A' && b == '#':
		return '£'
	}
	return rune(b)
}

// lineDrawing is the DEC special graphics set from 0x5f on.
var lineDrawing = [...]rune{
	' ', '◆', '▒', '␉', '␌', '␍', '␊', '°', '±', '␤', '␋', '┘', '┐', '┌', '└', '┼',
	'⎺', '⎻', '─', '⎼', '⎽', '├', '┤', '┴', '┬', '│', '≤', '≥', 'π', '≠', '£', '·',
}

// index moves the cursor down, and scrolls at the end of the region.
func (t *Terminal) index() {
	if t.cur.y == t.bottom {
		t.scrollUp(1)
	} else {
		t.down(1)
	}
}

// reverseIndex moves the cursor up, and scrolls at the beginning of the region.
func (t *Terminal) reverseIndex() {
	if t.cur.pending = false; t.cur.y == t.top {
		t.scrollDown(1)
	} else {
		t.up(1)
	}
}

// scrollUp scrolls the region; lines that leave the main screen at the top are kept.
func (t *Terminal) scrollUp(n int) {
	t.sync()
	n = min(n, t.bottom-t.top+1)
	if t.top == 0 && t.scr == t.main {
		for _, r := range t.scr.rows[:n] {
			t.keep(r)
		}
	}
	t.scr.scrollUp(t.top, t.bottom, n, t.blank)
}

func (t *Terminal) scrollDown(n int) {
	t.sync()
	t.scr.scrollDown(t.top, t.bottom, n, t.blank)
}
