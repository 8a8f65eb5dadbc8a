package terminal

// control does what a C0 control says.
func (t *Terminal) control(b byte) {
	t.last = 0
	c := &t.cur
	switch b {
	case '\b':
		c.x = max(c.x-1, 0)
		c.pending = false
	case '\t':
		t.tab(1)
	case '\n', '\v', '\f':
		c.pending = false
		t.index()
		if t.modes.has(modeNewline) {
			c.x = 0
		}
	case '\r':
		c.x, c.pending = 0, false
	case 0x0e:
		c.gl = 1
	case 0x0f:
		c.gl = 0
	}
}

// escapeSequence does what ESC, an intermediate byte or none, and b say.
func (t *Terminal) escapeSequence(inter, b byte) {
	t.last = 0
	c := &t.cur
	switch inter {
	case '(', ')', '*', '+':
		if b != '0' && b != 'A' {
			b = 'B'
		}
		c.charset[inter-'('] = b
	case '#':
		if b == '8' {
			t.align()
		}
	case 0:
		switch b {
		case '7':
			t.saveCursor()
		case '8':
			t.restoreCursor()
		case '=', '>':
			t.modes.set(modeKeypad, b == '=')
		case 'D':
			c.pending = false
			t.index()
		case 'E':
			c.x, c.pending = 0, false
			t.index()
		case 'H':
			t.tabs[c.x] = true
			t.desc.touched.tabs = true
		case 'M':
			c.pending = false
			t.reverseIndex()
		case 'N', 'O':
			c.single = b - 'N' + 2
		case 'n', 'o':
			c.gl = b - 'n' + 2
		case 'c':
			t.restart()
		}
	}
}

// align fills the screen with E (DECALN).
func (t *Terminal) align() {
	for _, r := range t.scr.rows {
		r.clear(cell{text: 'E'})
	}
	t.top, t.bottom = 0, t.rows-1
	t.cur.x, t.cur.y, t.cur.pending = 0, 0, false
}

func (t *Terminal) saveCursor() {
	t.scr.saved = t.cur
	t.scr.saved.single = 0
}

func (t *Terminal) restoreCursor() {
	t.cur = t.scr.saved
	t.cur.pending = t.cur.pending && t.modes.has(modeAutowrap)
	t.penDirty = true
	if t.cur.origin {
		t.cur.y = clamp(t.cur.y, t.top, t.bottom)
	}
}

// tab moves the cursor n tab stops on; back, if n is negative.
func (t *Terminal) tab(n int) {
	c := &t.cur
	c.pending = false
	for ; n > 0 && c.x < t.cols-1; n-- {
		for c.x++; c.x < t.cols-1 && !t.tabs[c.x]; c.x++ {
		}
	}
	for ; n < 0 && c.x > 0; n++ {
		for c.x--; c.x > 0 && !t.tabs[c.x]; c.x-- {
		}
	}
}

// defaultTabs returns tabs for a width: those there are, and every eighth column.
func defaultTabs(tabs []bool, cols int) []bool {
	out := make([]bool, cols)
	for x := copy(out, tabs); x < cols; x++ {
		out[x] = x%8 == 0 && x > 0
	}
	return out
}

// softReset is DECSTR.
func (t *Terminal) softReset() {
	t.cur = cursor{x: t.cur.x, y: t.cur.y, charset: newCursor().charset}
	t.penDirty = true
	t.scr.saved = newCursor()
	t.top, t.bottom = 0, t.rows-1
	t.modes.soft()
}
