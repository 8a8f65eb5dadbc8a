package terminal

import (
	"encoding/binary"
	"strconv"
	"unicode/utf8"
)

// Filter passes a program's output on to a person's terminal. What it reads, it
// reads as the screen model does, by the same scanner; what passes stands on a list
// (permit.go, permitosc.go), and is written anew, so that all
// terminals read the same. Not on the list is what
//
//   - reads the clipboard, or makes the terminal type what a program chose;
//   - changes the keyboard, or anything else that Reset doesn't bring back;
//   - has the terminal print, run, open or read something on the person's machine.
//
// The zero value passes neither questions nor the clipboard.
type Filter struct {
	Clipboard bool // texts for the clipboard pass (OSC 52), up to 100 kB
	Questions bool // what a terminal answers passes: of several that show a window, one answers
	Plain     bool // nothing but text passes: for a terminal that knows no sequences

	scan  scanner
	begun bool    // a string was passed whose end was not
	inner *Filter // of what tmux hands to the terminal that it runs in
	inned []byte  // what inner let pass
	depth int     // of filters around this one
}

// maxDepth is how many tmux may be around each other.
const maxDepth = 4

// Write appends to dst what of src may pass.
func (f *Filter) Write(dst, src []byte) []byte {
	f.scan.long = f.Clipboard
	for len(src) > 0 {
		if f.scan.ready() && !f.Plain {
			n := harmless(src)
			dst = append(dst, src[:n]...)
			if src = src[n:]; len(src) == 0 {
				break
			}
		}
		t, n := f.scan.next(src)
		dst = f.take(dst, t, src[:n])
		src = src[n:]
	}
	return dst
}

// Close ends what is under way: the terminal is in no sequence afterwards. What was
// held back of one is lost.
func (f *Filter) Close(dst []byte) []byte {
	dst = f.end(dst)
	f.scan = scanner{}
	return dst
}

// take appends what of a token may pass.
func (f *Filter) take(dst []byte, t token, b []byte) []byte {
	s := &f.scan
	switch {
	case t == tokNothing:
	case t == tokText:
		return append(dst, b...)
	case t == tokChar:
		if isC1(s.r) {
			return dst
		}
		return utf8.AppendRune(dst, s.r)
	case t == tokControl:
		if permitC0(s.b) && !(f.Plain && (s.b > '\r' || s.b == '\v' || s.b == '\f')) {
			return append(dst, s.b)
		}
	case f.Plain:
	case t == tokEscape:
		if s.permitEscape() {
			return appendBytes(append(dst, 0x1b), s.inter, s.b)
		}
	case t == tokCSI:
		if _, asks, ok := s.permitted(); ok && (f.Questions || !asks) {
			return appendBytes(s.params.append(appendBytes(append(dst, 0x1b, '['), s.private)), s.inter, s.b)
		}
	case t == tokString:
		return f.whole(dst)
	case t == tokBegins:
		return f.begins(dst)
	case t == tokPiece:
		return f.piece(dst, b)
	case t == tokEnds:
		return f.end(dst)
	}
	return dst
}

// appendBytes appends those that there are.
func appendBytes(dst []byte, all ...byte) []byte {
	for _, b := range all {
		if b != 0 {
			dst = append(dst, b)
		}
	}
	return dst
}

// begins passes the beginning of an image, or of what is for the terminal outside.
func (f *Filter) begins(dst []byte) []byte {
	s := &f.scan
	switch {
	case s.way == wrapped:
		if f.depth == maxDepth {
			return dst
		}
		f.begun, f.inner = true, &Filter{depth: f.depth + 1}
		return append(dst, "\x1bPtmux;"...)
	case s.kind == 'P': // sixel
		f.begun = true
		return append(s.params.append(append(dst, "\x1bP"...)), 'q')
	}
	if asks, ok := permitImage(s.data); ok && (f.Questions || !asks) {
		f.begun = true
		return append(append(append(dst, "\x1b_"...), s.data...), ';')
	}
	return dst
}

func (f *Filter) piece(dst, b []byte) []byte {
	switch {
	case !f.begun:
		return dst
	case f.inner == nil:
		return append(dst, b...)
	}
	f.inner.Clipboard, f.inner.Questions = f.Clipboard, f.Questions
	f.inned = f.inner.Write(f.inned[:0], b)
	return doubled(dst, f.inned)
}

// end ends the string that was begun.
func (f *Filter) end(dst []byte) []byte {
	if !f.begun {
		return dst
	}
	if f.inner != nil {
		dst = doubled(dst, f.inner.Close(nil))
		f.inner = nil
	}
	f.begun = false
	return append(dst, "\x1b\\"...)
}

// doubled appends b as tmux wants it.
func doubled(dst, b []byte) []byte {
	for _, c := range b {
		if c == 0x1b {
			dst = append(dst, c)
		}
		dst = append(dst, c)
	}
	return dst
}

// whole passes a string that is there from end to end.
func (f *Filter) whole(dst []byte) []byte {
	s := &f.scan
	switch s.kind {
	case ']':
		number, rest, ok := command(s.data)
		if !ok {
			return dst
		}
		var asks bool
		if number == clipboard {
			rest, ok = permitClipboard(rest)
			ok = ok && f.Clipboard
		} else {
			rest, asks, ok = permitCommand(number, rest)
		}
		switch {
		case !ok:
		case asks && !f.Questions:
			return appendUnasked(dst, number, rest, s.bel)
		default:
			return appendCommand(dst, strconv.Itoa(number), rest, s.bel)
		}
	case 'P':
		if permitQuestion(s.inter, s.data) && f.Questions {
			return append(append(append(dst, 0x1b, 'P', s.inter, 'q'), s.data...), 0x1b, '\\')
		}
	case '_':
		if asks, ok := permitImage(s.data); ok && (f.Questions || !asks) {
			return append(append(append(dst, 0x1b, '_'), s.data...), 0x1b, '\\')
		}
	}
	return dst
}

// harmless is the length of what b begins with that passes as it is: text, and the
// controls of permitC0.
func harmless(b []byte) int {
	const highs, blanks = 0x8080808080808080, 0x2020202020202020
	for i := 0; ; {
		for ; i+8 <= len(b); i += 8 { // eight bytes at a time: all printable ASCII, or DEL
			if word := binary.LittleEndian.Uint64(b[i:]); (word|(word-blanks)&^word)&highs != 0 {
				break
			}
		}
		if i == len(b) {
			return i
		}
		switch c := b[i]; {
		case c >= 0x80:
			n := wholeCharacter(b[i:])
			if n == 0 {
				return i
			}
			i += n
		case c < ' ' && !permitC0(c):
			return i
		default:
			i++
		}
	}
}

// wholeCharacter is the length of the character of several bytes that b begins
// with, if it is all there and no C1 control.
func wholeCharacter(b []byte) int {
	r, n := utf8.DecodeRune(b)
	if r < 0xa0 || r == utf8.RuneError && n < 3 {
		return 0
	}
	return n
}
