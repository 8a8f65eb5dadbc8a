package terminal

import (
	"bytes"
	"slices"
	"strings"
)

// What a person's terminal may be told, by list. The screen model does no more than
// that either. Sources: XTerm Control Sequences (invisible-island.net/xterm/ctlseqs),
// sw.kovidgoyal.net/kitty (protocol extensions, modes.h), foot-ctlseqs(7),
// iterm2.com/documentation-escape-codes.html and VT100Terminal.m, and Windows
// Terminal's DispatchTypes.hpp.

// permitC0: BEL, BS, HT, LF, VT, FF, CR, SO, SI and DEL. Not ENQ, which terminals
// answer with a text of their owner's; the others mean nothing.
func permitC0(b byte) bool { return b >= 0x07 && b <= 0x0f || b == 0x7f }

// isC1 reports whether a character is a C1 control, which some terminals act on.
func isC1(r rune) bool { return r >= 0x80 && r < 0xa0 }

// permitEscape: no other coding system (ESC %, after which the second byte of a
// character can be a C1 control), no C1 answers (ESC SP G), no DECID.
func (s *scanner) permitEscape() bool {
	switch s.inter {
	case 0:
		return strings.IndexByte("78=>DEHMNOcno", s.b) >= 0
	case '(', ')', '*', '+':
		if s.b != '0' && s.b != 'A' {
			s.b = 'B' // as the model has it
		}
		return true
	case '#':
		return s.b == '8'
	}
	return false
}

func (s *scanner) appendEscape(dst []byte) []byte {
	dst = append(dst, 0x1b)
	if s.inter != 0 {
		dst = append(dst, s.inter)
	}
	return append(dst, s.b)
}

func (s *scanner) appendControl(dst []byte) []byte {
	dst = append(dst, 0x1b, '[')
	if s.private != 0 {
		dst = append(dst, s.private)
	}
	dst = s.params.append(dst)
	if s.inter != 0 {
		dst = append(dst, s.inter)
	}
	return append(dst, s.b)
}

// permitControl reports whether a control sequence may pass, and whether it asks
// something. It leaves in it what may pass. Not on the list, of what terminals know:
// printing (i), the window (t), reports of titles (t), macros and the contents of the
// screen (*z, *y), locators ('z), VT levels and C1 answers ("p), rectangles and
// protected areas, margins left and right, stacks of colours and attributes (#).
func (s *scanner) permitControl() (asks, ok bool) {
	p := &s.params
	switch {
	case s.inter != 0:
		switch {
		case s.inter == '$' && s.b == 'p': // DECRQM
			return true, s.private == 0 || s.private == '?'
		case s.private != 0:
		case s.inter == ' ' && s.b == 'q': // DECSCUSR
			return false, p.get(0, 0) <= 6
		case s.inter == '!' && s.b == 'p': // DECSTR
			return false, true
		}
		return false, false
	case s.private == 0:
		return s.permitPlain()
	case s.private == '?':
		switch s.b {
		case 'h', 'l', 's', 'r':
			p.filter(isPrivateMode)
			return false, p.n > 0
		case 'J', 'K':
			return false, true
		case 'n':
			return true, p.get(0, 0) == 6 || p.get(0, 0) == 996
		case 'u', 'm': // what the keyboard does
			return true, true
		case 'S': // XTSMGRAPHICS: to read, or the largest
			return true, p.get(1, 0) == 1 || p.get(1, 0) == 4
		}
	case s.private == '>':
		switch s.b {
		case 'm': // XTMODKEYS
			return false, p.get(0, 0) < len(keyModes{}.modified) && p.n <= 2 && p.get(1, 0) <= 9
		case 'n': // the same, off: Reset can undo the other
			s.b, p.n = 'm', 1
			return false, p.v[0] >= 0 && p.get(0, 0) < len(keyModes{}.modified)
		case 'u':
			return false, true
		case 'c', 'q':
			return true, true
		}
	case s.private == '<':
		return false, s.b == 'u'
	case s.private == '=':
		return s.b == 'c', s.b == 'c' || s.b == 'u'
	}
	return false, false
}

// permitPlain is permitControl for those without private and intermediate bytes.
func (s *scanner) permitPlain() (asks, ok bool) {
	p := &s.params
	switch s.b {
	case 'h', 'l': // not KAM, which locks the keyboard, nor SRM
		p.filter(func(n int) bool { return n == 4 || n == 20 })
		return false, p.n > 0
	case 's': // with numbers it is of left and right margins
		return false, p.n == 0
	case 'T': // with several it is of the mouse
		return false, p.n <= 1
	case 'c':
		return true, true
	case 'n':
		return true, p.get(0, 0) == 5 || p.get(0, 0) == 6
	case 't':
		switch p.get(0, 0) {
		case 14, 15, 16, 18, 19: // sizes
			return true, true
		case 22, 23: // titles, put aside and taken back
			p.n = min(p.n, 2)
			return false, p.get(1, 0) <= 2
		}
		return false, false
	}
	return false, strings.IndexByte("@ABCDEFGHIJKLMPSXZ`abdefgjkmru", s.b) >= 0
}

// isPrivateMode reports whether programs may change a DEC private mode: those that
// the model knows and Reset brings back, and no others. So not VT52 (2), the user's
// keys (1061) and other keyboards (1050 and on), win32 input (9001), what Meta sends
// (1034 and on), kitty's handling of signals (19997), foot's input method (737769).
func isPrivateMode(number int) bool {
	switch number {
	case 6, 47, 1047, 1048, 1049:
		return true
	}
	return number > 0 && slices.Contains(privateNumbers[:], number) || slices.Contains(mouseModes, number)
}

// permitQuestion: DECRQSS of what it was made for, since xterm once answered with the
// text that it was asked for (CVE-2008-2383), and XTGETTCAP of names in hexadecimal.
func permitQuestion(inter byte, data []byte) bool {
	if inter == '$' {
		return slices.Contains([]string{"m", "r", "s", "t", " q", `"q`, `"p`}, string(data))
	}
	return inter == '+' && len(data) > 0 && len(bytes.Trim(data, "0123456789abcdefABCDEF;")) == 0
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// permitImage judges the keys of an image of kitty's. Its bytes have to come with it:
// a file or shared memory (t=f, t, s) would be one of the person's machine.
func permitImage(data []byte) (asks, ok bool) {
	if len(data) == 0 || data[0] != 'G' {
		return false, false
	}
	for _, field := range strings.Split(string(data[1:]), ",") {
		key, value, _ := strings.Cut(field, "=")
		switch {
		case key == "" && value == "":
		case len(key) != 1 || strings.Trim(key, letters) != "" || strings.Trim(value, letters+"0123456789-") != "":
			return false, false
		case key == "t" && value != "d":
			return false, false
		case key == "a" && value == "q":
			asks = true
		}
	}
	return asks, true
}
