package terminal

// controlSequence does what a control sequence with this final byte says.
func (t *Terminal) controlSequence(final byte) {
	s := &t.scan
	if final == 'b' && s.private == 0 && s.inter == 0 {
		t.repeat(s.params.get(0, 1))
		return
	}
	t.last = 0
	switch {
	case s.inter != 0:
		t.withIntermediate(final)
	case s.private == 0:
		if !t.move(final) && !t.edit(final) {
			t.setting(final)
		}
	case s.private == '?':
		t.private(final)
	case s.private == '>':
		switch final {
		case 'm':
			t.keys.modify(&s.params)
		case 'u':
			t.keys.push(t.Alternate(), s.params.get(0, 0))
			t.desc.touched.keyboard = t.desc.touched.keyboard || t.Alternate()
		default:
			t.identify(final)
		}
	case s.private == '<' && final == 'u':
		t.keys.pop(t.Alternate(), s.params.get(0, 1))
	case s.private == '=':
		if final == 'u' {
			t.keys.change(t.Alternate(), s.params.get(0, 0), s.params.get(1, 1))
			t.desc.touched.keyboard = t.desc.touched.keyboard || t.Alternate()
		} else {
			t.identify(final)
		}
	}
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

// move does the sequences that move the cursor.
func (t *Terminal) move(final byte) bool {
	c, p := &t.cur, &t.scan.params
	n := p.get(0, 1)
	switch final {
	case 'A', 'F', 'k':
		t.up(n)
	case 'B', 'e', 'E':
		t.down(n)
	case 'C', 'a':
		c.x = min(c.x+n, t.cols-1)
	case 'D', 'j':
		c.x = max(c.x-n, 0)
	case 'G', '`':
		c.x = clamp(n-1, 0, t.cols-1)
	case 'd':
		t.moveTo(c.x, n-1)
	case 'H', 'f':
		t.moveTo(p.get(1, 1)-1, n-1)
	case 'I':
		t.tab(n)
	case 'Z':
		t.tab(-n)
	default:
		return false
	}
	if final == 'E' || final == 'F' {
		c.x = 0
	}
	c.pending = false
	return true
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

// moveTo moves the cursor to a place given from 0, in the region with origin mode.
func (t *Terminal) moveTo(x, y int) {
	top, bottom := 0, t.rows-1
	if t.cur.origin {
		top, bottom = t.top, t.bottom
	}
	t.cur.x, t.cur.y = clamp(x, 0, t.cols-1), clamp(top+y, top, bottom)
	t.cur.pending = false
}

// edit does the sequences that erase, insert and delete.
func (t *Terminal) edit(final byte) bool {
	c, p := &t.cur, &t.scan.params
	n := p.get(0, 1)
	row := t.scr.rows[c.y]
	t.sync()
	if c.pending && (final == 'X' || final == '@' || final == 'P') {
		return true // the cursor is behind the row
	}
	switch final {
	case 'J':
		t.eraseDisplay(p.get(0, 0))
		return true
	case 'K':
		t.eraseLine(p.get(0, 0))
		return true
	case 'X':
		row.erase(c.x, min(c.x+n, t.cols), t.cols, t.blank)
	case '@':
		row.insert(c.x, n, t.cols, t.blank)
	case 'P':
		row.remove(c.x, n, t.cols, t.blank)
	case 'L', 'M':
		if c.y < t.top || c.y > t.bottom {
			return true
		}
		if final == 'L' {
			t.scr.scrollDown(c.y, t.bottom, n, t.blank)
		} else {
			t.scr.scrollUp(c.y, t.bottom, n, t.blank)
		}
		c.x = 0
	case 'S':
		t.scrollUp(n)
		return true
	case 'T':
		t.scr.scrollDown(t.top, t.bottom, n, t.blank)
		return true
	default:
		return false
	}
	c.pending = false
	return true
}

func (t *Terminal) eraseLine(what int) {
	row, x := t.scr.rows[t.cur.y], t.cur.x
	switch what {
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

func (t *Terminal) eraseDisplay(what int) {
	y := t.cur.y
	var rows []*row
	switch what {
	case 0:
		t.eraseLine(0)
		rows = t.scr.rows[y+1:]
	case 1:
		t.eraseLine(1)
		rows = t.scr.rows[:y]
	case 2:
		rows = t.scr.rows
	case 3:
		t.history.clear()
	}
	for _, r := range rows {
		r.clear(t.blank)
	}
}

// setting does the sequences that change how the terminal goes on.
func (t *Terminal) setting(final byte) {
	c, p := &t.cur, &t.scan.params
	switch final {
	case 'm':
		c.pen.apply(p)
		t.penDirty = true
	case 'r':
		top, bottom := p.get(0, 1)-1, min(p.get(1, t.rows), t.rows)-1
		if top < bottom {
			t.top, t.bottom = top, bottom
			t.moveTo(0, 0)
		}
	case 'g':
		t.desc.touched.tabs = true
		switch p.get(0, 0) {
		case 0:
			t.tabs[c.x] = false
		case 3:
			clear(t.tabs)
		}
	case 'h', 'l':
		for i := range min(p.n, maxParams) {
			t.modes.setANSI(p.get(i, 0), final == 'h')
		}
	case 's':
		t.saveCursor()
	case 'u':
		t.restoreCursor()
	case 't':
		t.window(p)
	case 'n':
		t.deviceStatus(p.get(0, 0))
	case 'c':
		t.identify(final)
	}
}

// private does the sequences that begin with CSI ?.
func (t *Terminal) private(final byte) {
	p := &t.scan.params
	switch final {
	case 'J':
		t.sync()
		t.eraseDisplay(p.get(0, 0))
	case 'K':
		t.sync()
		t.eraseLine(p.get(0, 0))
	case 'h', 'l':
		for i := range min(p.n, maxParams) {
			t.setMode(p.get(i, 0), final == 'h')
		}
	case 's', 'r':
		for i := range min(p.n, maxParams) {
			t.modes.saveOrRestore(t, p.get(i, 0), final == 's')
		}
	case 'n':
		t.privateStatus(p.get(0, 0))
	case 'u':
		t.answerKeys()
	}
}

// withIntermediate does the sequences that have an intermediate byte.
func (t *Terminal) withIntermediate(final byte) {
	s := &t.scan
	switch {
	case s.inter == ' ' && final == 'q' && s.private == 0:
		t.desc.shape = s.params.get(0, 0)
		if t.desc.shape > 6 {
			t.desc.shape = 0
		}
	case s.inter == '!' && final == 'p' && s.private == 0:
		t.softReset()
	case s.inter == '$' && final == 'p':
		t.requestMode(s.params.get(0, 0), s.private == '?')
	}
}
