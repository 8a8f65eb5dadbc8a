package terminal

// What the sequences of permit.go do.

func moves(to func(t *Terminal, n int)) sequence {
	return sequence{do: func(t *Terminal, p *params) {
		to(t, p.get(0, 1))
		t.cur.pending = false
	}}
}

// up moves the cursor up, not out of the region.
func (t *Terminal) up(n int) {
	limit := 0
	if t.cur.y >= t.top {
		limit = t.top
	}
	t.cur.y = max(t.cur.y-n, limit)
}

func (t *Terminal) down(n int) {
	limit := t.rows - 1
	if t.cur.y <= t.bottom {
		limit = t.bottom
	}
	t.cur.y = min(t.cur.y+n, limit)
}

func (t *Terminal) right(n int)  { t.cur.x = min(t.cur.x+n, t.cols-1) }
func (t *Terminal) left(n int)   { t.cur.x = max(t.cur.x-n, 0) }
func (t *Terminal) column(n int) { t.cur.x = clamp(n-1, 0, t.cols-1) }

func moveToPlace(t *Terminal, p *params) { t.moveTo(p.get(1, 1)-1, p.get(0, 1)-1) }

// moveTo moves the cursor to a place given from 0, in the region with origin mode.
func (t *Terminal) moveTo(x, y int) {
	top, bottom := 0, t.rows-1
	if t.cur.origin {
		top, bottom = t.top, t.bottom
	}
	t.cur.x, t.cur.y = clamp(x, 0, t.cols-1), clamp(top+y, top, bottom)
	t.cur.pending = false
}

// repeat shows the last character again, up to the end of the row.
func (t *Terminal) repeat(n int) {
	if t.last == 0 {
		return
	}
	w := width(t.last)
	for n = min(n, max((t.cols-t.cur.x)/w, 1)); n > 0; n-- {
		t.show(t.last, w)
	}
}

// edits changes the row from the cursor on, unless the cursor is behind it.
func edits(change func(t *Terminal, r *row, n int)) sequence {
	return sequence{do: func(t *Terminal, p *params) {
		if t.sync(); !t.cur.pending {
			change(t, t.scr.rows[t.cur.y], p.get(0, 1))
		}
	}}
}

func shiftsLines(shift func(s *screen, top, bottom, n int, fill cell)) sequence {
	return sequence{do: func(t *Terminal, p *params) {
		if c := &t.cur; c.y >= t.top && c.y <= t.bottom {
			t.sync()
			shift(t.scr, c.y, t.bottom, p.get(0, 1), t.blank)
			c.x, c.pending = 0, false
		}
	}}
}

func eraseLine(t *Terminal, p *params) {
	t.sync()
	row, x := t.scr.rows[t.cur.y], t.cur.x
	switch p.get(0, 0) {
	case 0:
		// When the last column has just been written, tmux, kitty, VTE and others don't
		// erase it, and programs that fill a row and then erase its end expect that.
		if !t.cur.pending {
			row.erase(x, t.cols, t.cols, t.blank)
		}
	case 1:
		row.erase(0, x+1, t.cols, t.blank)
	case 2:
		row.clear(t.blank)
	}
}

func eraseDisplay(t *Terminal, p *params) {
	t.sync()
	y := t.cur.y
	var rows []*row
	switch p.get(0, 0) {
	case 0:
		eraseLine(t, p)
		rows = t.scr.rows[y+1:]
	case 1:
		eraseLine(t, p)
		rows = t.scr.rows[:y]
	case 2:
		rows = t.scr.rows
	case 3:
		t.history = history{limit: t.history.limit}
	}
	for _, r := range rows {
		r.clear(t.blank)
	}
}

func setRegion(t *Terminal, p *params) {
	if top, bottom := p.get(0, 1)-1, min(p.get(1, t.rows), t.rows)-1; top < bottom {
		t.top, t.bottom = top, bottom
		t.moveTo(0, 0)
	}
}

func clearTabs(t *Terminal, p *params) {
	t.desc.touched.tabs = true
	switch p.get(0, 0) {
	case 0:
		t.tabs[t.cur.x] = false
	case 3:
		clear(t.tabs)
	}
}

func eachMode(do func(t *Terminal, number int)) func(*Terminal, *params) {
	return func(t *Terminal, p *params) {
		for i := range min(p.n, maxParams) {
			do(t, p.get(i, 0))
		}
	}
}

// keyboard is that of the screen that is shown, to be changed.
func (t *Terminal) keyboard() *keyboard {
	t.desc.touched.keyboard = t.desc.touched.keyboard || t.alternate()
	return &t.scr.keys
}

func identifies(as string) func(*Terminal, *params) {
	return func(t *Terminal, p *params) {
		if p.get(0, 0) == 0 {
			t.answer("%s", as)
		}
	}
}

func answerStatus(t *Terminal, p *params) {
	y := t.cur.y + 1
	if t.cur.origin {
		y -= t.top
	}
	bg, known := t.known["11"]
	switch what := p.get(0, 0); {
	case what == 5:
		t.answer("\x1b[0n")
	case what == 6 && t.scan.private == 0:
		t.answer("\x1b[%d;%dR", y, t.cur.x+1)
	case what == 6:
		t.answer("\x1b[?%d;%d;1R", y, t.cur.x+1)
	case known && 299*(bg>>16&0xff)+587*(bg>>8&0xff)+114*(bg&0xff) >= 128000: // 996: dark or light
		t.answer("\x1b[?997;2n")
	case known:
		t.answer("\x1b[?997;1n")
	}
}
