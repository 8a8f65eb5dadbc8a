package terminal

func (t *Terminal) control(b byte) {
	t.last = 0
	switch b {
	case '\b':
		t.left(1)
		t.cur.pending = false
	case '\t':
		t.tab(1)
	case '\n', '\v', '\f':
		t.newLine(t.modes.has(modeNewline))
	case '\r':
		t.cur.x, t.cur.pending = 0, false
	case 0x0e, 0x0f:
		t.cur.gl = 0x0f - b
	}
}

func (t *Terminal) newLine(first bool) {
	if t.cur.pending = false; first {
		t.cur.x = 0
	}
	t.index()
}

// escapes are the sequences of ESC and one byte that may pass.
var escapes = [0x80]func(*Terminal){
	'7': (*Terminal).saveCursor,
	'8': (*Terminal).restoreCursor,
	'=': func(t *Terminal) { t.modes.set(modeKeypad, true) },
	'>': func(t *Terminal) { t.modes.set(modeKeypad, false) },
	'D': func(t *Terminal) { t.newLine(false) },
	'E': func(t *Terminal) { t.newLine(true) },
	'H': func(t *Terminal) { t.tabs[t.cur.x], t.desc.touched.tabs = true, true },
	'M': (*Terminal).reverseIndex,
	'N': func(t *Terminal) { t.cur.single = 2 },
	'O': func(t *Terminal) { t.cur.single = 3 },
	'c': (*Terminal).restart,
	'n': func(t *Terminal) { t.cur.gl = 2 },
	'o': func(t *Terminal) { t.cur.gl = 3 },
}

func (t *Terminal) escapeSequence(inter, b byte) {
	t.last = 0
	switch inter {
	case 0:
		escapes[b](t)
	case '#':
		t.align()
	default:
		t.cur.charset[inter-'('] = b
	}
}

// align fills the screen with E (DECALN).
func (t *Terminal) align() {
	for _, r := range t.scr.rows {
		r.erase(0, t.cols, t.cols+1, cell{text: 'E'})
		r.fill, r.wrapped = space, false
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
	step, edge, c := 1, t.cols-1, &t.cur
	if n < 0 {
		step, edge, n = -1, 0, -n
	}
	for c.pending = false; n > 0 && c.x != edge; n-- {
		for c.x += step; c.x != edge && !t.tabs[c.x]; c.x += step {
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
	t.modes.on = t.modes.on&^(1<<modeInsert|1<<modeCursorKeys|1<<modeKeypad) | 1<<modeCursor | 1<<modeAutowrap
}
