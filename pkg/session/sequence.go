package session

import "unicode/utf8"

// maxHeld is how much of an unfinished sequence is waited for. Terminals answer
// with longer ones, and those may be cut.
const maxHeld = 4 << 10

const (
	bel = 0x07
	can = 0x18
	sub = 0x1a
	esc = 0x1b
)

// sequence is the length of the first thing in what a terminal has typed: a
// character, a control character, or an escape sequence. If the end of it is
// not there yet, complete is false. b must not be empty.
func sequence(b []byte) (n int, complete bool) {
	if b[0] != esc {
		return character(b)
	}
	if len(b) == 1 {
		return 1, false
	}
	switch b[1] {
	case '[':
		return control(b)
	case 'O': // SS3, keys of the keypad and F1 to F4
		if len(b) < 3 {
			return len(b), false
		}
		return 3, true
	case ']', 'P', '_', '^', 'X':
		return controlString(b)
	case esc: // Alt with a key that is a sequence
		if len(b) > 2 && b[2] == esc {
			return 1, true
		}
		n, complete = sequence(b[1:])
		return n + 1, complete
	}
	n, complete = character(b[1:]) // Alt with a key
	return n + 1, complete
}

func character(b []byte) (int, bool) {
	if b[0] < utf8.RuneSelf {
		return 1, true
	}
	if !utf8.FullRune(b) {
		return len(b), false
	}
	_, n := utf8.DecodeRune(b)
	return n, true
}

// control is a control sequence (ECMA-48, 5.4). The mouse has one of its own
// kind: three bytes follow CSI M.
func control(b []byte) (int, bool) {
	for i := 2; i < len(b); i++ {
		switch c := b[i]; {
		case c == 'M' && i == 2:
			if len(b) < 6 {
				return len(b), false
			}
			return 6, true
		case c >= 0x40 && c <= 0x7e:
			return i + 1, true
		case c < 0x20 || c > 0x7e: // it was no sequence
			return i, true
		}
	}
	return len(b), len(b) > maxHeld
}

func controlString(b []byte) (int, bool) {
	for i := 2; i < len(b); i++ {
		switch b[i] {
		case bel, can, sub:
			return i + 1, true
		case esc:
			if i+1 == len(b) {
				return len(b), len(b) > maxHeld
			}
			if b[i+1] == '\\' {
				return i + 2, true
			}
			return i, true
		}
	}
	return len(b), len(b) > maxHeld
}
