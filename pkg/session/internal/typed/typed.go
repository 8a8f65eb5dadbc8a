// Package typed cuts what a terminal sends into characters and sequences.
package typed

import (
	"bytes"
	"iter"
	"unicode/utf8"
)

// MaxHeld is how much of an unfinished sequence is waited for. Terminals answer
// with longer ones, and those may be cut.
const MaxHeld = 4 << 10

const (
	bel = 0x07
	can = 0x18
	sub = 0x1a
	esc = 0x1b
)

// Sequences are the things in what a terminal has typed, and whether each is complete.
func Sequences(b []byte) iter.Seq2[[]byte, bool] {
	return func(yield func([]byte, bool) bool) {
		for len(b) > 0 {
			n, complete := sequence(b)
			if !yield(b[:n], complete) {
				return
			}
			b = b[n:]
		}
	}
}

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
	return len(b), len(b) > MaxHeld
}

func controlString(b []byte) (int, bool) {
	for i := 2; i < len(b); i++ {
		switch b[i] {
		case bel, can, sub:
			return i + 1, true
		case esc:
			if i+1 == len(b) {
				return len(b), len(b) > MaxHeld
			}
			if b[i+1] == '\\' {
				return i + 2, true
			}
			return i, true
		}
	}
	return len(b), len(b) > MaxHeld
}

// WithoutReports takes out of input what a terminal sends by itself: answers to
// questions, and that it got or lost the focus. Keys and the mouse stay.
func WithoutReports(b []byte) []byte {
	if bytes.IndexByte(b, esc) < 0 {
		return b
	}
	out := make([]byte, 0, len(b))
	for seq, complete := range Sequences(b) {
		if !complete || !IsReport(seq) {
			out = append(out, seq...)
		}
	}
	return out
}

// IsReport says whether a terminal sends a sequence by itself.
func IsReport(seq []byte) bool {
	if len(seq) < 3 || seq[0] != esc {
		return false
	}
	switch seq[1] {
	case ']', 'P', '_':
		return true
	case '[':
		switch body, final := seq[2:len(seq)-1], seq[len(seq)-1]; final {
		case 'I', 'O': // focus
			return len(body) == 0
		case 'c', 'n', 'x', 't': // DA, DSR, DECREPTPARM, window reports
			return true
		case 'u', 'S': // kitty keyboard, XTSMGRAPHICS
			return len(body) > 0 && body[0] == '?'
		case 'R': // CPR; F3 with modifiers is "1;…R"
			return len(body) > 0 && !bytes.HasPrefix(body, []byte("1;"))
		case 'y':
			return bytes.HasSuffix(body, []byte{'$'})
		}
	}
	return false
}
