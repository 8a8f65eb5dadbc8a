package terminal

import (
	"bytes"
	"slices"
	"strings"
)

// CutOff ends whatever sequence a terminal may be in the middle of.
const CutOff = "\x18\x1b\\"

// Steers reports whether b has anything that a terminal could have to be brought back from: escape sequences, the
// choice of a character set, or what may be a control of ECMA-48 section 5.3, which UTF-8 begins with 0xc2.
func Steers(b []byte) bool {
	return slices.ContainsFunc([]byte{0x1b, 0x0e, 0x0f, 0xc2}, func(c byte) bool { return bytes.IndexByte(b, c) >= 0 })
}

// Reset returns what brings a client's terminal back to where a shell expects it, with nothing that the programs
// switched on left on, and the cursor on the last row that the main screen uses. The terminal got this one's bytes.
func (t *Terminal) Reset() []byte {
	var e restorer
	e.put("\x1b\\\x1b[?2026l")
	c := t.cur
	if t.alternate() { // it has a keyboard of its own
		e.put(noKeyboard)
		c = t.main.saved
	}
	e.put("\x1b7\x1b[?1049l") // 1049 restores the cursor, also where nothing is to be left
	// Both take the cursor home. The terminal may have had something above what the model
	// knows, so that only the cursor says where it is.
	const home = "\x1b[?6l\x1b[r"
	if c.origin {
		e.put(home)
	} else {
		e.put("\x1b7" + home + "\x1b8")
	}
	for mode := range modeNumbers {
		e.mode(mode, defaultModes&(1<<mode) != 0)
	}
	for _, number := range mouseModes {
		e.put("\x1b[?%dl", number)
	}
	e.put("\x1b>\x1b[0 q" + noKeyboard)
	for resource, value := range t.modified {
		if value > 0 && resource != 4 {
			e.put("\x1b[>%dm", resource)
		}
	}
	e.put("\x1b[>4;0m\x1b[>4m\x1b[m\x1b]8;;\x1b\\\x1b(B\x1b)B\x1b*B\x1b+B\x0f%s", t.Traces().Undo())
	switch used := t.main.used(c.y+1) - 1; {
	case c.origin: // a cursor that is saved with it can't be brought back without
		e.put("\x1b[%dH", used+1)
	case used > c.y:
		e.put("\r\x1b[%dB", used-c.y)
	default:
		e.put("\r")
	}
	return e.buf
}

func (e *restorer) mode(mode int, on bool) {
	number, prefix, final := modeNumbers[mode], "?", 'l'
	if number < 0 {
		number, prefix = -number, ""
	}
	if on {
		final = 'h'
	}
	e.put("\x1b[%s%d%c", prefix, number, final)
}

// noKeyboard empties the stack of kitty's protocol, of kittyDepth, for the screen that is shown.
const noKeyboard = "\x1b[<32u\x1b[=0;1u"

// Traces are what programs have left on a terminal that no later program takes back by itself: colours, progress,
// titles put aside, tab stops, the keyboard of the screen that is not shown. Two can be compared.
type Traces struct {
	title, progress, tabs bool
	colors                [20]bool // by the number of OSC that sets them; 100 more takes them back
	keyboard              bool     // that of the alternate screen
	titles                int      // put aside
}

// Traces returns what there is to take back by now.
func (t *Terminal) Traces() Traces {
	left := t.desc.touched
	left.titles = len(t.desc.stack)
	return left
}

// Undo returns what takes them back.
func (t Traces) Undo() []byte {
	var e restorer
	for range t.titles {
		e.put("\x1b[23;0t")
	}
	for number, touched := range t.colors {
		if touched {
			e.put("\x1b]%d\x1b\\", 100+number)
		}
	}
	if t.progress {
		e.put("\x1b]9;4;0\x1b\\")
	}
	if t.tabs {
		// What was to be beyond the last column is there.
		e.put("\x1b7\x1b[3g\r%s\x1b[g\x1b8", strings.Repeat("\x1b[8C\x1bH", maxCols/8))
	}
	if t.keyboard {
		e.put("\x1b7\x1b[?1049h" + noKeyboard + "\x1b[?1049l\x1b8")
	}
	return e.buf
}

// Over returns what gives a terminal, whatever it has been told, an empty alternate screen with nothing switched on that
// could change what is drawn there or typed: no colours of programs, no margins, no keyboard protocol, and answers in 7
// bits. The cursor is hidden, lines don't wrap, and pasted text is marked.
func Over() []byte {
	t := New(Options{Cols: 80, Rows: 24, Scrollback: -1})
	for number := range t.desc.touched.colors {
		t.desc.touched.colors[number] = number == 4 || number >= 10
	}
	var e restorer
	e.put("%s\x1b F%s\x1b[?69l\x1b[?1049h%s\x1b[!p\x1b[m\x1b[2J\x1b[?25l\x1b[?7l\x1b[?2004h", CutOff, t.Reset(), noKeyboard)
	return e.buf
}

// Back returns what leaves the screen that Over has made. What was there before has to be drawn afresh.
func Back() []byte {
	return []byte(CutOff + noKeyboard + "\x1b[?2004l\x1b[?7h\x1b[m\x1b[?1049l\x1b[?25h")
}
