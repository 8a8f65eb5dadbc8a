package terminal

import "slices"

// Resize wraps the main screen's text anew, with lines that go into the scrollback and come
// back from it, and cuts the alternate screen. The scroll region becomes the whole screen.
func (t *Terminal) Resize(cols, rows int) {
	cols, rows = clamp(cols, 1, maxCols), clamp(rows, 1, maxRows)
	if cols == t.cols && rows == t.rows {
		return
	}
	if t.alternate() {
		t.reflow(cols, rows, &t.main.saved)
		t.cur.y -= t.alt.cut(cols, rows, t.cur.y)
	} else {
		t.reflow(cols, rows, &t.cur)
		t.alt.cut(cols, rows, 0)
	}
	widened := cols != t.cols
	t.cols, t.rows = cols, rows
	for _, c := range []*cursor{&t.cur, &t.main.saved, &t.alt.saved} {
		c.x, c.y = clamp(c.x, 0, cols-1), clamp(c.y, 0, rows-1)
		c.pending = c.pending && c.x == cols-1 && !widened
	}
	t.top, t.bottom = 0, rows-1
	t.tabs = defaultTabs(t.tabs[:min(len(t.tabs), cols)], cols)
	t.penDirty = true
}

// cut makes a screen fit without wrapping anew. It returns how many rows it took away at the top to keep row y.
func (s *screen) cut(cols, rows, y int) (above int) {
	if len(s.rows) > rows {
		above = max(0, y-rows+1)
		s.rows = s.rows[above : above+rows]
	}
	s.rows = padded(s.rows, rows)
	for _, r := range s.rows {
		if len(r.cells) > cols {
			r.part(cols)
			r.cells = r.cells[:cols]
		}
		r.wrapped = false
	}
	return above
}

// reflow gives the main screen a new size. The cursor c stays on its character. A smaller height takes the rows below
// it first, as tmux, xterm and Alacritty have it: what is there belongs to a program that draws it again.
func (t *Terminal) reflow(cols, rows int, c *cursor) {
	if below := min(len(t.main.rows)-rows, len(t.main.rows)-1-c.y); below > 0 {
		t.main.rows = t.main.rows[:len(t.main.rows)-below]
	}
	used := t.main.used(c.y + 1)
	spare := len(t.main.rows) - used
	f := flow{cols: cols}
	if cols != t.cols {
		f.line = t.unfinished()
	}
	for y, r := range t.main.rows[:used] {
		if y == c.y {
			if f.seen, f.at = true, len(f.line)+c.x; c.pending {
				f.at++
			}
		}
		f.add(r, t.cols)
	}
	if len(f.line) > 0 || f.seen {
		f.wrap()
	}
	over := len(f.rows) + spare - rows
	for n := over - spare; n > 0; n-- {
		t.keep(f.rows[0])
		f.rows = f.rows[1:]
		f.y--
	}
	if over < 0 {
		back := t.fetch(cols, -over)
		f.rows = append(back, f.rows...)
		f.y += len(back)
	}
	t.main.rows = padded(f.rows, rows)
	c.x, c.y, c.pending = min(f.x, cols-1), f.y, f.x == cols // behind a full row
}

// flow puts wrapped rows together and wraps them anew.
type flow struct {
	cols int
	rows []*row
	line []cell // of the line that is not complete
	fill cell

	seen bool // the cursor is in line
	at   int  // where
	x, y int  // where it comes to be
}

// add adds a row that is width cells wide.
func (f *flow) add(r *row, width int) {
	if r.wrapped {
		r.grow(width)
	}
	f.fill = r.fill
	for _, c := range r.cells {
		if c.text != padding {
			f.line = append(f.line, c)
		}
	}
	if !r.wrapped {
		f.wrap()
	}
}

// wrap makes rows of the line.
func (f *flow) wrap() {
	line := trimmed(f.line, f.fill)
	r := &row{fill: f.fill}
	for i, w := 0, 0; i < len(line); i += w {
		w = columns(line, i)
		if len(r.cells)+w > f.cols && len(r.cells) > 0 {
			if len(r.cells) < f.cols {
				r.cells = append(r.cells, cell{text: padding})
			}
			r.wrapped = true
			f.rows = append(f.rows, r)
			r = &row{fill: f.fill}
		}
		if f.seen && f.at < i+w {
			f.x, f.y, f.seen = len(r.cells)+max(f.at-i, 0), len(f.rows), false
		}
		if w <= f.cols {
			r.cells = append(r.cells, line[i:i+w]...)
		} else {
			r.cells = append(r.cells, space) // two columns don't fit in one
		}
	}
	if f.rows = append(f.rows, r); f.seen {
		f.x, f.y, f.seen = min(len(r.cells)+f.at-len(line), f.cols), len(f.rows)-1, false
		if f.at > len(line) {
			f.x = min(f.x, f.cols-1)
		}
	}
	f.line = f.line[:0]
}

// maxPulled bounds how many rows of one line come back from the history.
const maxPulled = 256

// unfinished takes back the beginning of the line that the screen's first row goes on with.
func (t *Terminal) unfinished() []cell {
	var parts [][]cell
	for len(parts) < maxPulled && t.history.endsWrapped() {
		line, _ := t.history.pop()
		parts = append(parts, t.unpack(line).cells)
	}
	slices.Reverse(parts)
	return slices.Concat(parts...)
}

// fetch takes up to n rows back from the history.
func (t *Terminal) fetch(cols, n int) []*row {
	var back []*row
	for len(back) < n && t.history.lines > 0 {
		line, wrapped := t.history.pop()
		f := flow{cols: cols, line: t.unfinished()}
		r := t.unpack(line)
		f.add(r, len(r.cells))
		f.rows[len(f.rows)-1].wrapped = wrapped
		back = append(f.rows, back...)
	}
	for len(back) > n {
		t.keep(back[0])
		back = back[1:]
	}
	return back
}

// unpack reads a line of the history into a row.
func (t *Terminal) unpack(line []byte) *row {
	scratch := New(Options{Cols: maxCols, Rows: 1, Scrollback: -1})
	scratch.Write(line)
	r := scratch.main.rows[0]
	convert := func(c *cell) {
		if c.text&cluster != 0 && c.text != padding {
			c.text = t.packText(scratch.text(*c))
		}
		c.style = t.internStyle(scratch.look(c.style))
	}
	for i := range r.cells {
		convert(&r.cells[i])
	}
	convert(&r.fill)
	return r
}
