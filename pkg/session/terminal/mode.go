package terminal

import "slices"

// Modes that the model acts on, or that are restored in a way of their own: bits, and places in modeNumbers.
const (
	modeInsert = iota
	modeNewline
	modeCursorKeys
	modeAutowrap
	modeAutorepeat
	modeCursor
	modeKeypad
	modeSync
)

// modeNumbers are the modes that are on or off: of DEC, and those of ANSI as negative
// numbers. Origin mode and the screens are handled by setMode. Reset takes all of them
// back, and a person's terminal is told of no other (isPrivateMode).
var modeNumbers = [...]int{
	modeInsert: -4, modeNewline: -20, modeCursorKeys: 1, modeAutowrap: 7, modeAutorepeat: 8, modeCursor: 25, modeKeypad: 66, modeSync: 2026,
	// Reverse video, blinking, backarrow, focus, alternate scroll, urgency, paste, graphemes, colour scheme, size reports.
	5, 12, 67, 1004, 1007, 1042, 2004, 2027, 2031, 2048,
}

// mouseModes say what the mouse reports, and how. On some terminals the last one
// set counts, on others each is for itself; so their order is kept.
var mouseModes = []int{9, 1000, 1001, 1002, 1003, 1005, 1006, 1015, 1016}

const defaultModes modeSet = 1<<modeAutowrap | 1<<modeAutorepeat | 1<<modeCursor

type modeSet uint32

type modes struct {
	on    modeSet
	mouse []int        // that are set, the latest last
	saved map[int]bool // by XTSAVE; only modes that are known, so not many
}

func (m *modes) has(mode int) bool { return m.on&(1<<mode) != 0 }

func (m *modes) set(mode int, on bool) {
	m.on &^= 1 << mode
	if on {
		m.on |= 1 << mode
	}
}

func (t *Terminal) setMode(number int, on bool) {
	m := &t.modes
	switch mode := slices.Index(modeNumbers[:], number); {
	case number == 6:
		t.cur.origin = on
		t.moveTo(0, 0)
	case number == 47 || number == 1047 || number == 1049:
		t.switchScreen(on, number == 1049)
	case number == 1048 && on:
		t.saveCursor()
	case number == 1048:
		t.restoreCursor()
	case mode >= 0:
		m.set(mode, on)
		t.cur.pending = t.cur.pending && m.has(modeAutowrap)
	case slices.Contains(mouseModes, number):
		m.mouse = slices.DeleteFunc(m.mouse, func(n int) bool { return n == number })
		if on {
			m.mouse = append(m.mouse, number)
		}
	}
}

// report returns what DECRQM answers: as mode, or 3 for what is on whatever a program sets. The program will rely on it,
// so it is what the model then does.
func (t *Terminal) report(number int) int {
	switch number {
	case 2027: // graphemes are joined in any case
		return 3
	case 2031, 2048: // nobody tells of another colour scheme, or of a size, while only the model looks
		return 0
	}
	return t.mode(number)
}

// mode returns 1 for a mode that is set, 2 for one that is reset, 0 for one that is unknown.
func (t *Terminal) mode(number int) int {
	on := false
	switch mode := slices.Index(modeNumbers[:], number); {
	case number == 6:
		on = t.cur.origin
	case number == 47 || number == 1047 || number == 1049:
		on = t.alternate()
	case mode >= 0:
		on = t.modes.has(mode)
	case slices.Contains(mouseModes, number):
		on = slices.Contains(t.modes.mouse, number)
	default:
		return 0
	}
	if on {
		return 1
	}
	return 2
}

func (t *Terminal) saveMode(number int) {
	if value := t.mode(number); value != 0 {
		t.modes.saved[number] = value == 1
	}
}

func (t *Terminal) takeMode(number int) {
	if on, ok := t.modes.saved[number]; ok {
		t.setMode(number, on)
	}
}

// switchScreen shows the alternate screen, which is empty, or the main one again.
// The cursor stays where it is unless it is kept for the time of the switch.
func (t *Terminal) switchScreen(alternate, keepCursor bool) {
	if alternate && t.alternate() {
		return
	}
	if alternate && keepCursor {
		t.saveCursor()
	}
	if alternate || t.alternate() {
		t.sync()
		t.alt.saved, t.alt.keys = newCursor(), keyboard{}
		for _, r := range t.alt.rows {
			r.clear(t.blank)
		}
	}
	if t.scr = t.main; alternate {
		t.scr = t.alt
	} else if keepCursor {
		t.restoreCursor()
	}
}
