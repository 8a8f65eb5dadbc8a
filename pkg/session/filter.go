package session

import (
	"bytes"
	"encoding/binary"
)

// filter passes a program's output on to a terminal, less what that terminal
// must not get:
//
//   - a request to read the clipboard (OSC 52 with "?"; OSC 5522 of type read).
//     The terminal would type the user's clipboard into a program that is
//     trusted with nothing;
//   - with noClipboard, writing it too; and always if the text is too long;
//   - with noQueries, questions that a terminal answers: of several terminals
//     that show a window, one answers.
//
// It works on a stream: a sequence is held back only until it is known to be
// harmless, and text goes through at the speed of a search for ESC. What a
// sequence is follows ECMA-48, 5.3 to 5.6; where terminals differ in what they
// take for one, any reading counts. A C1 control is one as a code point of UTF-8
// and as a single byte outside of a character.
type filter struct {
	noClipboard bool
	noQueries   bool

	state filterState
	held  []byte // of a sequence that is not judged yet
	lead  byte   // what follows ESC in the control string that we are in: ']', 'P', …
	c2    bool   // 0xC2 is held: the first byte of a C1 control, or of a character
	more  uint8  // bytes that the present character still has

	inner  *filter // inTmux: what the outer terminal gets
	escape bool    // inTmux: the last byte was ESC
	passed []byte  // inTmux: what inner let through
	ending bool    // inHead or inStore: after ESC, which may begin ST
	depth  int     // of filters around this one
}

type filterState uint8

const (
	inText   filterState = iota
	inEscape             // after ESC
	inCSI                // after CSI, up to the final byte
	inHead               // of a control string: not known yet which
	inString             // of one that goes through
	inStore              // of one that is judged at its end
	inDrop               // of one that is taken out
	inTmux               // DCS tmux; … ST: a stream for the terminal that tmux runs in
)

const (
	maxClipboard = 100 << 10 // bytes of base64 that one OSC 52 may write
	maxHead      = 64        // bytes within which a control string says what it is
	maxCSI       = 256       // no question is longer
	maxDepth     = 4         // of tmux in tmux
)

const (
	bel = 0x07
	can = 0x18
	sub = 0x1a
	esc = 0x1b
)

// write appends to dst what of src may pass.
func (f *filter) write(dst, src []byte) []byte {
	for len(src) > 0 {
		if !f.c2 && f.more == 0 && (f.state == inText || f.state == inString || f.state == inDrop) {
			n := plain(src, f.state != inText)
			if f.state != inDrop {
				dst = append(dst, src[:n]...)
			}
			if src = src[n:]; len(src) == 0 {
				break
			}
		}
		dst = f.step(dst, src[0])
		src = src[1:]
	}
	return dst
}

// plain is the length of what src begins with that means nothing to us: in
// text, all but ESC and what could be a C1 control; in a string, nothing that may
// end it.
func plain(src []byte, inString bool) int {
	const ones, highs, escs = 0x0101010101010101, 0x8080808080808080, 0x1b1b1b1b1b1b1b1b
	for i := 0; ; {
		if !inString { // eight bytes at a time: none is ESC, and none above ASCII
			for ; i+8 <= len(src); i += 8 {
				word := binary.LittleEndian.Uint64(src[i:])
				if x := word ^ escs; (word|(x-ones)&^x)&highs != 0 {
					break
				}
			}
		}
		if i == len(src) {
			return i
		}
		switch c := src[i]; {
		case c == esc || inString && (c < 0x20 || c >= 0x80):
			return i
		case c < 0x80:
			i++
		default:
			n := wholeCharacter(src[i:])
			if n == 0 {
				return i
			}
			i += n
		}
	}
}

// wholeCharacter is the length of the character of several bytes that b begins
// with, if it is all there and no C1 control.
func wholeCharacter(b []byte) int {
	n := 0
	switch c := b[0]; {
	case c >= 0xf0 && c < 0xf8:
		n = 4
	case c >= 0xe0 && c < 0xf0:
		n = 3
	case c >= 0xc3 && c < 0xe0:
		n = 2
	}
	if n > len(b) {
		return 0
	}
	for _, c := range b[min(1, n):n] {
		if c&0xc0 != 0x80 {
			return 0
		}
	}
	return n
}

// step takes one byte: it finds out whether that is a control, or data.
func (f *filter) step(dst []byte, c byte) []byte {
	if f.state == inTmux {
		return f.tmux(dst, c)
	}
	if f.ending {
		f.ending = false
		if c == '\\' { // ST
			dst, passed := f.finish(dst)
			f.state, f.held = inText, f.held[:0]
			if passed {
				dst = append(dst, esc, c)
			}
			return dst
		}
		f.state, f.held = inEscape, append(f.held[:0], esc)
	}
	if f.c2 {
		f.c2 = false
		if c >= 0x80 && c <= 0x9f {
			return f.c1(dst, c, true)
		}
		dst = f.data(dst, 0xc2)
		if c >= 0xa0 && c <= 0xbf {
			return f.data(dst, c)
		}
	}
	if f.more > 0 {
		if c&0xc0 == 0x80 {
			f.more--
			return f.data(dst, c)
		}
		f.more = 0
	}
	switch {
	case c == esc:
		if f.state == inHead || f.state == inStore {
			f.ending = true
			return dst
		}
		f.leave()
		f.state, f.held = inEscape, append(f.held[:0], c)
		return dst
	case c < 0x80:
	case c <= 0x9f:
		return f.c1(dst, c, false)
	case c == 0xc2:
		f.c2 = true
		return dst
	case c >= 0xf8:
	case c >= 0xf0:
		f.more = 3
	case c >= 0xe0:
		f.more = 2
	case c >= 0xc3:
		f.more = 1
	}
	return f.data(dst, c)
}

// leave ends what a control cuts off. What is held of it goes nowhere: had it
// gone on, a terminal that sees no control here could join it with what follows.
func (f *filter) leave() { f.state, f.held = inText, f.held[:0] }

// c1 takes a control of the range 0x80 to 0x9f, which is short for ESC and
// another byte. With utf8, it was written as two bytes.
func (f *filter) c1(dst []byte, c byte, utf8 bool) []byte {
	if c == 0x9c && (f.state == inHead || f.state == inStore || f.state == inDrop) { // ST
		var passed bool
		if dst, passed = f.finish(dst); !passed {
			f.leave()
			return dst
		}
	}
	f.leave()
	if utf8 {
		f.held = append(f.held, 0xc2)
	}
	f.held = append(f.held, c)
	return f.introduce(dst, c-0x40)
}

// data takes a byte that is no ESC and no C1 control.
func (f *filter) data(dst []byte, c byte) []byte {
	switch f.state {
	case inEscape:
		f.held = append(f.held, c)
		return f.introduce(dst, c)
	case inCSI:
		return f.csi(dst, c)
	case inHead, inString, inStore, inDrop:
		return f.inside(dst, c)
	}
	return append(dst, c)
}

// introduce decides by the byte after ESC. The sequence so far is held.
func (f *filter) introduce(dst []byte, c byte) []byte {
	switch c {
	case '[':
		f.state = inCSI
		return dst
	case ']', 'P':
		f.state, f.lead = inHead, c
		return dst
	case 'X', '^', '_': // SOS, PM, APC
		f.state, f.lead = inString, c
		if c == '_' && f.noQueries { // a kitty image may ask whether it was shown
			f.state = inHead
			return dst
		}
	case 'Z': // DECID
		f.state = inText
		if f.noQueries {
			return dst
		}
	default:
		f.state = inText
	}
	return append(dst, f.held...)
}

// csi collects a control sequence. Only questions are of interest.
func (f *filter) csi(dst []byte, c byte) []byte {
	switch {
	case c == can || c == sub || c >= 0x80:
		f.state = inText
		return append(append(dst, f.held...), c)
	case c < 0x20: // is executed in the middle
		return append(dst, c)
	}
	f.held = append(f.held, c)
	if c < 0x40 && len(f.held) <= maxCSI {
		return dst
	}
	f.state = inText
	if f.noQueries && asks(f.held) {
		return dst
	}
	return append(dst, f.held...)
}

// asks reports whether a control sequence makes the terminal answer.
func asks(seq []byte) bool {
	final := seq[len(seq)-1]
	body := bytes.TrimLeft(seq[:len(seq)-1], "\x1b[\xc2\x9b")
	var first byte
	if len(body) > 0 {
		first = body[0]
	}
	switch final {
	case 'c': // DA1, DA2, DA3; with "?", the Linux console's cursor
		return first != '?'
	case 'n': // DSR; with ">", keys
		return first != '>'
	case 'p': // DECRQM
		return bytes.HasSuffix(body, []byte{'$'})
	case 'q': // XTVERSION
		return first == '>'
	case 'u': // kitty keyboard
		return first == '?'
	case 'x': // DECREQTPARM
		return len(body) < 2
	case 't': // window reports
		n, _, _ := bytes.Cut(body, []byte{';'})
		switch string(n) {
		case "11", "13", "14", "15", "16", "18", "19", "20", "21":
			return true
		}
	case 'y', 'w': // DECRQCRA, DECRQPSR
		return bytes.ContainsAny(body, "*$")
	case 'S': // XTSMGRAPHICS
		return first == '?'
	}
	return false
}
