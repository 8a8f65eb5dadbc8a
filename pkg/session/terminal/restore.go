package terminal

import (
	"fmt"
	"maps"
	"slices"
)

// Restore returns what brings a freshly reset terminal to what this one shows: content, modes, colours, keyboard,
// titles. A smaller one gets the part with the cursor, a larger one the screen at its upper left. Not part of it are
// the scrollback and synchronized output (2026), which would freeze it until the program ends its update.
func (t *Terminal) Restore(cols, rows int) []byte {
	e := &restorer{t: t, cols: clamp(cols, 1, maxCols), rows: clamp(rows, 1, maxRows)}
	e.put("\x1b[?2026h\x1b[?25l\x1b[m\x1b[H\x1b[2J")
	e.colors()
	e.screen(t.main)
	e.kitty(t.main.keys)
	if t.alternate() {
		// The switch saves the cursor, to be restored when the program leaves.
		e.cursor(t.main, t.main.saved, "\x1b[?1049h")
		e.put("\x1b[2J") // it may have taken the pen's background
		e.screen(t.alt)
		e.kitty(t.alt.keys)
	}
	if s := t.scr; s.saved != newCursor() {
		e.cursor(s, s.saved, "\x1b7")
	}
	e.tabs()
	e.titles()
	e.finish()
	return e.buf
}

type restorer struct {
	t          *Terminal
	cols, rows int
	above      int // rows that the other terminal has no room for at the top
	buf        []byte
	style      look // the other terminal's pen
	later      []placed

	links, styles, marks int // bytes of them so far
}

// Bounds on what Restore says besides the characters: a screen can ask for a thousand
// times as much as it shows. What comes beyond is drawn without.
const (
	maxLinks  = 256 << 10
	maxStyles = 1 << 20
	maxMarks  = 1 << 20 // what combines
	markCost  = 32      // of placing one
)

// afford takes n bytes from a budget, if it has them.
func (e *restorer) afford(spent *int, n, limit int) bool {
	if *spent+n > limit {
		return false
	}
	*spent += n
	return true
}

// placed is a cell that is drawn when all others are there.
type placed struct {
	x, y int
	c    cell
}

func (e *restorer) put(format string, args ...any) {
	e.buf = fmt.Appendf(e.buf, format, args...)
}

func (e *restorer) pen(s look) {
	e.buf = appendStyle(e.buf, e.style, s)
	e.style = s
}

func (e *restorer) cell(c cell) {
	if s := e.t.look(c.style); s != e.style {
		if s.Link != "" && s.Link != e.style.Link && !e.afford(&e.links, len(s.Link), maxLinks) {
			s.Link = ""
		}
		if s != e.style && !e.afford(&e.styles, 0, maxStyles) {
			s = look{}
		}
		before := len(e.buf)
		e.pen(s)
		e.styles += len(e.buf) - before - min(len(s.Link), len(e.buf)-before)
	}
	if c.text == padding {
		c.text = ' '
	}
	e.buf = e.t.appendText(e.buf, c)
}

// cursor brings the other cursor into the state c, sends what uses it, and takes all but the place back.
func (e *restorer) cursor(s *screen, c cursor, use string) {
	if c.origin {
		e.put("\x1b[?6h") // the region is the whole screen, so places are as without
	}
	e.place(s, c, 0)
	e.put("%s", use)
	e.charsets(c, newCursor())
	if c.origin {
		e.put("\x1b[?6l")
	}
	e.pen(look{})
}

// place brings a fresh cursor to the place of c, with rows counted from top, its pen and its character sets.
func (e *restorer) place(s *screen, c cursor, top int) {
	y := clamp(c.y-e.above, 0, e.rows-1)
	x := min(c.x, e.cols-1)
	r := s.rows[c.y]
	// Only writing the last column again makes the next character wrap.
	again := c.pending && e.cols >= e.t.cols
	if again {
		x = r.start(x)
	}
	before := r.start(x - 1)
	if !again || before >= 0 && e.joins(r.get(before), r.get(x)) {
		e.put("\x1b[%d;%dH", y-top+1, min(c.x, e.cols-1)+1)
	} else {
		e.put("\x1b[%d;%dH", y-top+1, x+1)
		e.cell(r.get(x))
	}
	e.pen(c.pen)
	e.charsets(newCursor(), c)
}

// charsets changes the other terminal's from those of one cursor to those of another.
func (e *restorer) charsets(from, to cursor) {
	for i, set := range to.charset {
		if set != from.charset[i] {
			e.put("\x1b%c%c", "()*+"[i], set)
		}
	}
	if to.gl != from.gl {
		e.put("%s", [...]string{"\x0f", "\x0e", "\x1bn", "\x1bo"}[to.gl])
	}
}

func (e *restorer) tabs() {
	if slices.Equal(e.t.tabs, defaultTabs(nil, e.t.cols)) {
		return
	}
	e.put("\x1b[3g")
	for x, set := range e.t.tabs {
		if set && x < e.cols {
			e.put("\x1b[%dG\x1bH", x+1)
		}
	}
}

func (e *restorer) kitty(k keyboard) {
	for i, flags := range append(slices.Clone(k.below), k.flags) {
		if i > 0 {
			e.put("\x1b[>%du", flags)
		} else if flags != 0 {
			e.put("\x1b[=%d;1u", flags)
		}
	}
}

// finish sets what would have been in the way before.
func (e *restorer) finish() {
	t := e.t
	top := 0
	if t.top > 0 || t.bottom < t.rows-1 || e.rows > t.rows && t.rows > 1 {
		if first, last := t.top-e.above, t.bottom-e.above; first >= 0 && last < e.rows && first < last {
			e.put("\x1b[%d;%dr", first+1, last+1)
			top = first
		}
	}
	if !t.cur.origin {
		top = 0
	} else {
		e.put("\x1b[?6h")
	}
	e.place(t.scr, t.cur, top)
	if t.cur.single != 0 {
		e.put("\x1b%c", 'N'+t.cur.single-2)
	}
	for resource, value := range t.modified {
		if value > 0 {
			e.put("\x1b[>%d;%dm", resource, value-1)
		}
	}
	e.modes()
	if t.desc.shape != 0 {
		e.put("\x1b[%d q", t.desc.shape)
	}
	if t.modes.has(modeCursor) {
		e.put("\x1b[?25h")
	}
	e.put("\x1b[?2026l")
}

func (e *restorer) modes() {
	m := &e.t.modes
	for mode := range modeNumbers {
		switch {
		case mode == modeSync || mode == modeCursor || m.has(mode) == (defaultModes&(1<<mode) != 0):
		case mode == modeKeypad:
			e.put("\x1b=")
		default:
			e.mode(mode, m.has(mode))
		}
	}
	for _, number := range m.mouse {
		e.put("\x1b[?%dh", number)
	}
}

func (e *restorer) colors() {
	for _, name := range slices.Sorted(maps.Keys(e.t.desc.colors)) {
		e.put("\x1b]%s;%s\x1b\\", name, e.t.desc.colors[name])
	}
}

func (e *restorer) titles() {
	d := &e.t.desc
	title := func(s titles) { e.put("\x1b]1;%s\x1b\\\x1b]2;%s\x1b\\", s.icon, s.title) }
	for _, s := range d.stack {
		title(s)
		e.put("\x1b[22;0t")
	}
	if d.touched.title {
		title(d.titles)
	}
	if d.progress != "" {
		e.put("\x1b]9;4;%s\x1b\\", d.progress)
	}
}
