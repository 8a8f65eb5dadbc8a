package terminal

import (
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Restore returns what brings a freshly reset terminal of the given size to what this
// one shows, in its state: content, modes, colours, keyboard, titles. Send Reset
// before to a terminal that isn't fresh. The sizes should be the same: where the other
// one is smaller it gets the part with the cursor, where it is larger, the screen is at
// its upper left.
//
// The scrollback is not part of it, nor is synchronized output (2026), which would
// freeze the other terminal until the program ends its update.
func (t *Terminal) Restore(cols, rows int) []byte {
	e := &restorer{t: t, cols: clamp(cols, 1, maxCols), rows: clamp(rows, 1, maxRows)}
	e.put("\x1b[?2026h\x1b[?25l\x1b[m\x1b[H\x1b[2J")
	e.colors()
	e.screen(t.main)
	e.kitty(t.keys.main)
	if t.Alternate() {
		// The switch saves the cursor, to be restored when the program leaves.
		e.cursor(t.main, t.main.saved, "\x1b[?1049h")
		e.put("\x1b[2J") // it may have taken the pen's background
		e.screen(t.alt)
		e.kitty(t.keys.alternate)
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
	style      Style // the other terminal's pen
	later      []placed
}

// placed is a cell that is drawn when all others are there.
type placed struct {
	x, y int
	c    cell
}

func (e *restorer) put(format string, args ...any) {
	e.buf = fmt.Appendf(e.buf, format, args...)
}

func (e *restorer) pen(s Style) {
	e.buf = appendStyle(e.buf, e.style, s)
	e.style = s
}

func (e *restorer) cell(c cell) {
	e.pen(e.t.styles.value(c.style))
	if c.text == padding {
		c.text = ' '
	}
	e.buf = e.t.appendText(e.buf, c)
}

// screen draws one screen's rows on an empty screen.
func (e *restorer) screen(s *screen) {
	e.above = max(0, e.t.cur.y-e.rows+1)
	joined := false // the cursor is behind the row before, which this one goes on with
	for y, r := range s.rows[e.above:min(len(s.rows), e.above+e.rows)] {
		if !joined {
			if r.empty() && !r.wrapped {
				continue
			}
			e.put("\x1b[%dH", y+1)
		}
		next := e.above + y + 1
		goesOn := r.wrapped && e.cols == e.t.cols && next < len(s.rows) && y+1 < e.rows
		following := &row{fill: space}
		if next < len(s.rows) {
			following = s.rows[next]
		}
		e.row(r, y, joined, goesOn, following)
		joined = goesOn
	}
	for _, p := range slices.Backward(e.later) {
		e.put("\x1b[%d;%dH", p.y+1, p.x+1)
		e.cell(p.c)
	}
	e.later = nil
	e.pen(Style{})
}

// joins reports whether the other terminal would draw two cells as one when they came
// one after the other, as they did not here.
func (e *restorer) joins(c, next cell) bool {
	if c.text < utf8.RuneSelf || next.text < utf8.RuneSelf {
		return false
	}
	first, _ := utf8.DecodeRuneInString(e.t.text(next))
	return joins(e.t.text(c), first)
}

// startsWide reports whether a row begins with a character that would not fit into one
// column: not with a narrow one that became an emoji by what follows.
func (e *restorer) startsWide(r *row) bool {
	first, _ := utf8.DecodeRuneInString(e.t.text(r.get(0)))
	return isWide(r, 0) && width(first) == 2
}

func isWide(r *row, x int) bool { return x+1 < len(r.cells) && r.cells[x+1].text == tail }

// row draws a row: at least one cell if it is joined to the one before, and all if it
// goes on in the next, so that the other terminal wraps it by itself.
func (e *restorer) row(r *row, y int, joined, goesOn bool, following *row) {
	width := min(e.t.cols, e.cols)
	end := min(len(r.cells), width)
	if goesOn || r.fill.text != ' ' {
		end = width
	}
	for !goesOn && end > 0 && r.get(end-1) == r.fill && r.fill.text == ' ' {
		end--
	}
	if joined {
		end = max(end, 1)
	}
	for x, w := 0, 1; x < end; x += w {
		c := r.get(x)
		if w = 1; isWide(r, x) {
			w = 2
		}
		next := following.get(0)
		if x+w < width && r.get(x+w).text != padding {
			next = r.get(x + w)
		}
		switch {
		case w == 2 && x+1 == width:
			c.text = ' ' // half of it is beyond the edge
		case c.text == padding && goesOn && e.startsWide(following):
			continue // the other terminal leaves the column free itself
		case e.joins(c, next):
			e.later = append(e.later, placed{x, y, c})
			c.text = ' '
			for range w - 1 {
				e.cell(c)
			}
		}
		e.cell(c)
		if c.text&cluster != 0 && x+w < end && !goesOn {
			e.put("\x1b[%dG", x+w+1) // terminals differ in the width of what is composed
		}
	}
	if end < width && r.fill != space {
		e.pen(e.t.styles.value(r.fill.style))
		e.put("\x1b[K")
	}
}

// cursor brings the other terminal's cursor into the state c, sends what uses it, and
// takes everything but the place back.
func (e *restorer) cursor(s *screen, c cursor, use string) {
	if c.origin {
		e.put("\x1b[?6h") // the region is the whole screen, so places are as without
	}
	e.place(s, c, 0)
	e.pen(c.pen)
	e.charsets(c)
	e.put("%s", use)
	e.charsetsBack(c)
	if c.origin {
		e.put("\x1b[?6l")
	}
	e.pen(Style{})
}

// place moves the cursor, with rows counted from top.
func (e *restorer) place(s *screen, c cursor, top int) {
	y := clamp(c.y-e.above, 0, e.rows-1)
	x := min(c.x, e.cols-1)
	r := s.rows[c.y]
	// Only writing the last column again makes the next character wrap.
	again := c.pending && e.cols >= e.t.cols
	if again && x > 0 && isWide(r, x-1) {
		x--
	}
	if !again || x > 0 && e.joins(r.get(x-1), r.get(x)) {
		e.put("\x1b[%d;%dH", y-top+1, min(c.x, e.cols-1)+1)
		return
	}
	e.put("\x1b[%d;%dH", y-top+1, x+1)
	e.cell(r.get(x))
}

func (e *restorer) charsets(c cursor) {
	for i, set := range c.charset {
		if set != 'B' {
			e.put("\x1b%c%c", "()*+"[i], set)
		}
	}
	e.put("%s", [...]string{"", "\x0e", "\x1bn", "\x1bo"}[c.gl])
}

func (e *restorer) charsetsBack(c cursor) {
	for i, set := range c.charset {
		if set != 'B' {
			e.put("\x1b%cB", "()*+"[i])
		}
	}
	if c.gl != 0 {
		e.put("\x0f")
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

func (e *restorer) kitty(s kittyStack) {
	for i, flags := range s {
		switch {
		case i > 0:
			e.put("\x1b[>%du", flags)
		case flags != 0:
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
	if t.cur.origin {
		e.put("\x1b[?6h")
	} else {
		top = 0
	}
	e.place(t.scr, t.cur, top)
	e.pen(t.cur.pen)
	e.charsets(t.cur)
	if t.cur.single != 0 {
		e.put("\x1b%c", 'N'+t.cur.single-2)
	}
	e.keyModes()
	e.modes()
	if t.desc.shape != 0 {
		e.put("\x1b[%d q", t.desc.shape)
	}
	if t.modes.has(modeCursor) {
		e.put("\x1b[?25h")
	}
	e.put("\x1b[?2026l")
}

func (e *restorer) keyModes() {
	for resource, value := range e.t.keys.modified {
		if value > 0 {
			e.put("\x1b[>%d;%dm", resource, value-1)
		}
	}
}

func (e *restorer) modes() {
	m := &e.t.modes
	if m.has(modeInsert) {
		e.put("\x1b[4h")
	}
	if m.has(modeNewline) {
		e.put("\x1b[20h")
	}
	for mode, number := range privateNumbers {
		if number == 0 || mode == modeSync || mode == modeCursor || m.has(mode) == (defaultModes&(1<<mode) != 0) {
			continue
		}
		switch {
		case mode == modeKeypad:
			e.put("\x1b=")
		case m.has(mode):
			e.put("\x1b[?%dh", number)
		default:
			e.put("\x1b[?%dl", number)
		}
	}
	for _, number := range m.mouse {
		e.put("\x1b[?%dh", number)
	}
}

func (e *restorer) colors() {
	d := &e.t.desc
	for n := range 256 {
		if spec := d.palette[n]; spec != "" {
			e.put("\x1b]4;%d;%s\x1b\\", n, spec)
		}
	}
	for i, spec := range d.dynamic {
		if spec != "" {
			e.put("\x1b]%d;%s\x1b\\", 10+i, spec)
		}
	}
}

func (e *restorer) titles() {
	d := &e.t.desc
	for _, s := range d.stack {
		e.title(s)
		e.put("\x1b[22;0t")
	}
	if d.touched.title {
		e.title(titles{d.title, d.icon})
	}
	if d.cwd != "" {
		e.osc(7, d.cwd)
	}
	if d.progress != "" {
		e.osc(9, "4;"+d.progress)
	}
}

func (e *restorer) title(s titles) {
	e.osc(1, s.icon)
	e.osc(2, s.title)
}

func (e *restorer) osc(number int, text string) {
	e.buf = append(e.buf, "\x1b]"+strconv.Itoa(number)+";"+text+"\x1b\\"...)
}
