// Package typed cuts what a terminal sends into characters and sequences.
package typed

import (
	"bytes"
	"iter"
	"unicode/utf8"
)

// MaxHeld is how much of an unfinished sequence is waited for. Terminals answer with longer ones, and those may be cut.
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
			n := length(b)
			complete := n > 0 || len(b) > MaxHeld
			if n == 0 {
				n = len(b)
			}
			if !yield(b[:n], complete) {
				return
			}
			b = b[n:]
		}
	}
}

// Whole says whether seq is a character or a sequence to its end. One that is not was cut: what a terminal types next may
// be the rest of it.
func Whole(seq []byte) bool { return length(seq) == len(seq) }

// length is that of the first character or sequence of b, which is not empty; 0 if its end is not there yet.
func length(b []byte) int {
	switch {
	case b[0] != esc && !utf8.FullRune(b), b[0] == esc && len(b) == 1:
		return 0
	case b[0] != esc:
		_, n := utf8.DecodeRune(b)
		return n
	}
	switch b[1] {
	case '[':
		return control(b)
	case 'O': // SS3, keys of the keypad and F1 to F4
		if len(b) < 3 {
			return 0
		}
		return 3
	case ']', 'P', '_', '^', 'X':
		return controlString(b)
	case esc:
		if len(b) > 2 && b[2] == esc {
			return 1
		}
	}
	if n := length(b[1:]); n > 0 { // Alt with a key, which may be a sequence
		return n + 1
	}
	return 0
}

// control is a control sequence (ECMA-48, 5.4). The mouse has one of its own kind: three bytes follow CSI M.
func control(b []byte) int {
	for i := 2; i < len(b); i++ {
		switch c := b[i]; {
		case c == 'M' && i == 2 && len(b) < 6:
			return 0
		case c == 'M' && i == 2:
			return 6
		case c >= 0x40 && c <= 0x7e:
			return i + 1
		case c < 0x20 || c > 0x7e: // it was no sequence
			return i
		}
	}
	return 0
}

func controlString(b []byte) int {
	for i := 2; i < len(b); i++ {
		switch c := b[i]; {
		case c == bel || c == can || c == sub:
			return i + 1
		case c == esc && i+1 == len(b):
			return 0
		case c == esc && b[i+1] == '\\':
			return i + 2
		case c == esc:
			return i
		}
	}
	return 0
}

// WithoutReports takes out of input what a terminal sends by itself: answers, and reports of focus.
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

// IsMouse says whether a sequence is what the mouse does.
func IsMouse(seq []byte) bool {
	return bytes.HasPrefix(seq, []byte("\x1b[<")) || bytes.HasPrefix(seq, []byte("\x1b[M"))
}
