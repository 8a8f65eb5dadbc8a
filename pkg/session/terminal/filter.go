package terminal

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// Filter passes a program's output on to a person's terminal. What it reads, it reads as the screen model does, by the
// same scanner; what passes stands on a list (permit.go, permitosc.go), and is written anew, so that all terminals read
// the same. Not on the list is what
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

// Close ends what is under way: the terminal is in no sequence afterwards. What was held back of one is lost.
func (f *Filter) Close(dst []byte) []byte {
	dst = f.end(dst)
	f.scan = scanner{}
	return dst
}

// take appends what of a token may pass.
func (f *Filter) take(dst []byte, t token, b []byte) []byte {
	s := &f.scan
	switch {
	case t == tokText:
		return append(dst, b...)
	case t == tokChar:
		return utf8.AppendRune(dst, s.r)
	case t == tokControl && !(f.Plain && (s.b > '\r' || s.b == '\v' || s.b == '\f')):
		return append(dst, s.b)
	case f.Plain:
	case t == tokEscape:
		return append(appendSet(append(dst, 0x1b), s.inter), s.b)
	case t == tokCSI && (f.Questions || !s.asks):
		return append(appendSet(s.params.append(appendSet(append(dst, 0x1b, '['), s.private)), s.inter), s.b)
	case t == tokString:
		return f.whole(dst)
	case t == tokBegins:
		return f.begins(dst, ";")
	case t == tokPiece && f.inner != nil:
		f.inner.Clipboard, f.inner.Questions = f.Clipboard, f.Questions
		return doubled(dst, f.inner.Write(nil, b))
	case t == tokPiece && f.begun:
		return append(dst, b...)
	case t == tokEnds:
		return f.end(dst)
	}
	return dst
}

// appendSet appends b, if it is there.
func appendSet(dst []byte, b byte) []byte {
	if b == 0 {
		return dst
	}
	return append(dst, b)
}

// begins passes the beginning of an image, up to a separator, or of what is for the terminal outside.
func (f *Filter) begins(dst []byte, separator string) []byte {
	s := &f.scan
	asks, ok := permitImage(s.data)
	switch {
	case s.way == wrapped && f.depth == maxDepth:
		return dst
	case s.way == wrapped:
		f.inner = &Filter{depth: f.depth + 1}
		dst = append(dst, "\x1bPtmux;"...)
	case s.kind == 'P': // sixel
		dst = append(s.params.append(append(dst, "\x1bP"...)), 'q')
	case ok && (f.Questions || !asks):
		dst = append(append(append(dst, "\x1b_"...), s.data...), separator...)
	default:
		return dst
	}
	f.begun = true
	return dst
}

func (f *Filter) end(dst []byte) []byte {
	if !f.begun {
		return dst
	}
	if f.inner != nil {
		dst = doubled(dst, f.inner.Close(nil))
	}
	f.begun, f.inner = false, nil
	return append(dst, "\x1b\\"...)
}

// doubled appends b as tmux wants it.
func doubled(dst, b []byte) []byte {
	return append(dst, bytes.ReplaceAll(b, []byte{0x1b}, []byte{0x1b, 0x1b})...)
}

// whole passes a string that is there from end to end.
func (f *Filter) whole(dst []byte) []byte {
	s := &f.scan
	switch number, text, ok := command(s.data); {
	case s.kind == '_':
		return f.end(f.begins(dst, ""))
	case s.kind == 'P' && f.Questions && permitQuestion(s.inter, s.data):
		dst = append(dst, 0x1b, 'P', s.inter, 'q')
		return append(append(dst, s.data...), "\x1b\\"...)
	case s.kind == ']' && ok && (f.Clipboard || number != clipboard):
		text, asks, ok := permitCommand(number, text)
		switch {
		case !ok:
		case asks && !f.Questions:
			eachColor(number, text, func(_ int, name, spec string) { // those that are set
				if spec != "?" {
					dst = appendCommand(dst, name, spec, s.bel)
				}
			})
		default:
			return appendCommand(dst, strconv.Itoa(number), text, s.bel)
		}
	}
	return dst
}

// harmless is the length of what b begins with that passes as it is: text, and the controls of permitC0.
func harmless(b []byte) int {
	for i := 0; ; {
		i += printable(b[i:])
		if i == len(b) {
			return i
		}
		switch c := b[i]; {
		case c >= 0x80:
			r, n := utf8.DecodeRune(b[i:])
			if r < 0xa0 || r == utf8.RuneError && n < 3 { // a C1 control, or not all there
				return i
			}
			i += n
		case !permitC0(c):
			return i
		default:
			i++
		}
	}
}
