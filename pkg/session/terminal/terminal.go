package terminal

import (
	"net/url"
	"strings"
)

// Bounds on a screen's size; New and Resize keep within them.
const (
	maxCols = 1024
	maxRows = 512
)

// Options says how large a terminal is.
type Options struct {
	Cols, Rows int // of the screen, in cells; out of range is brought within 1…1024 and 1…512
	Scrollback int // lines kept that left the screen; 0 means 10,000, negative none
}

// Terminal is a terminal's state. It is not safe for concurrent use.
type Terminal struct {
	cols, rows int
	main, alt  *screen
	scr        *screen // main or alt

	cur         cursor
	top, bottom int // scroll region, both inside
	tabs        []bool
	modes       modes
	modified    keyResources
	desc        descriptions

	looks    interner
	penDirty bool   // penID and blank are older than cur.pen
	penID    uint32 // cur.pen, interned
	blank    cell   // what erasing leaves: a space on the pen's background

	last    rune // what REP repeats; 0 if the last thing was no character
	history history
	scan    scanner
	replies []byte
	kitty   bool              // the person's terminal has kitty's keyboard protocol
	known   map[string]uint32 // its colours by number of OSC, 0xRRGGBB
}

// cursor is what DECSC saves.
type cursor struct {
	x, y    int
	pending bool // the last column is written, and the next character wraps
	origin  bool
	pen     look
	charset [4]byte // what G0…G3 are: 'B' ASCII, '0' line drawing, 'A' British
	gl      uint8   // which of them is in use
	single  uint8   // which of them the next character is of, after SS2 and SS3
}

func newCursor() cursor { return cursor{charset: [4]byte{'B', 'B', 'B', 'B'}} }

// New returns a terminal that has just been switched on.
func New(o Options) *Terminal {
	t := &Terminal{cols: clamp(o.Cols, 1, maxCols), rows: clamp(o.Rows, 1, maxRows), known: map[string]uint32{}}
	if o.Scrollback == 0 {
		o.Scrollback = 10000
	}
	t.history.limit = max(o.Scrollback, 0)
	t.restart()
	return t
}

// restart is the state after power-on and RIS; what scrolled away stays.
func (t *Terminal) restart() {
	t.main, t.alt = newScreen(t.rows), newScreen(t.rows)
	t.scr = t.main
	t.cur = newCursor()
	t.top, t.bottom = 0, t.rows-1
	t.tabs = defaultTabs(nil, t.cols)
	t.modes = modes{on: defaultModes, saved: map[int]bool{}}
	t.modified = keyResources{}
	t.desc = descriptions{touched: t.desc.touched, colors: map[string]string{}}
	t.looks = newInterner()
	t.penDirty = true
	t.last = 0
}

// Size returns the screen's size in cells.
func (t *Terminal) Size() (cols, rows int) { return t.cols, t.rows }

// Title returns the window's title as the programs set it, without control characters.
func (t *Terminal) Title() string { return t.desc.title }

// Cwd returns the working directory that the shell reported (OSC 7), or "".
func (t *Terminal) Cwd() string {
	u, err := url.Parse(t.desc.cwd)
	if err != nil || u.Scheme != "file" && u.Scheme != "kitty-shell-cwd" {
		return ""
	}
	return clean(u.Path, maxLink)
}

func (t *Terminal) alternate() bool { return t.scr == t.alt }

// Cursor returns the cursor's column and row, both from 0.
func (t *Terminal) Cursor() (x, y int) { return t.cur.x, t.cur.y }

// Text returns what the rows show, from the top, without blanks at their ends.
func (t *Terminal) Text() []string {
	out := make([]string, t.rows)
	for y, r := range t.scr.rows {
		var b []byte
		for x := range t.cols {
			b = t.appendText(b, r.get(x))
		}
		out[y] = strings.TrimRight(string(b), " ")
	}
	return out
}

func clamp(v, low, high int) int { return max(low, min(v, high)) }
