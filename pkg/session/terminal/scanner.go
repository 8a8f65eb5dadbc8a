package terminal

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// scanner finds text, controls and sequences in what a program prints. The screen model and the filter in front of a
// person's terminal both read by it, so that they can't take the same bytes for different things.
//
// Its states are those of Paul Williams' VT500 parser (vt100.net/emu/dec_ansi_parser). Where real terminals disagree it
// takes one reading, and the filter writes anew what passes, so that none is left to them:
//   - C0 controls within a sequence are done at once, DEL is nothing (VT500);
//   - C1 controls, as a byte or as a character, are no controls (tmux, kitty);
//   - a string ends by ST, an OSC by BEL as well; what another sequence, CAN or
//     SUB cuts off never was;
//   - ESC k begins a string: a title to tmux and screen.
type scanner struct {
	state   uint8
	partial []byte // of a character, at most 3 bytes
	r       rune   // the character that was found
	b       byte   // the control, or the final byte
	private byte   // of < = > ?, or 0
	inter   byte   // the intermediate byte, or 0
	bad     bool   // more intermediate bytes than mean anything
	params  params
	do      func(*Terminal, *params) // what the control sequence does to the model, or nil
	asks    bool                     // it has the terminal answer

	kind    byte   // what follows ESC in the string that we are in: ] P _ ^ X k
	way     uint8  // what happens to its bytes
	data    []byte // what is kept of it
	over    bool   // it is longer than is kept
	bel     bool   // it was ended by BEL
	escaped bool   // the last byte was ESC
	long    bool   // a text for the clipboard is kept
}

// The states. Text comes first: it is what there is most of.
const (
	ground uint8 = iota
	escape
	csi
	dcsEntry
	inString
)

// The ways of a string's bytes.
const (
	keep    uint8 = iota // they are put together, and handed out at the end
	head                 // the same up to the first semicolon, which says what the string is
	stream               // they are handed out as they come: an image
	wrapped              // as they come, with ESC doubled: tmux hands them to the terminal that it runs in
	skip                 // they mean nothing here
)

// token is what next found: of characters, controls and sequences only what may pass.
type token uint8

const (
	tokNothing token = iota // yet, or nothing that has a meaning
	tokText                 // a run of printable ASCII
	tokChar                 // another character, or U+FFFD for what is none: r
	tokControl              // of C0, or DEL: b
	tokEscape               // inter, b
	tokCSI                  // private, params, inter, b; do, asks
	tokString               // a whole string: kind, data; of DCS also private, params, inter, b
	tokBegins               // one of the way stream or wrapped
	tokPiece                // bytes of it
	tokEnds                 // its end, wherever that is
)

// Bounds on what is kept of one sequence. What is longer is read over.
const (
	maxOSC       = 8192
	maxDCS       = 256
	maxHead      = 512
	maxClipboard = 100 << 10 // bytes of base64 that one OSC 52 may write
)

// next reads from p, which must not be empty, up to the end of the first thing in
// it, and returns how much that was. A text and a piece of a string are p[:n].
func (s *scanner) next(p []byte) (t token, n int) {
	if s.state == ground {
		if len(s.partial) > 0 || p[0] != 0x1b {
			return s.printable(p)
		}
		s.begin(escape)
		n = 1
	}
	for ; n < len(p); n++ {
		if s.state == inString {
			t, m := s.inside(p[n:])
			return t, n + m
		}
		switch b := p[n]; {
		case b == 0x1b:
			s.begin(escape)
		case b == 0x18 || b == 0x1a:
			s.state = ground
			return tokNothing, n + 1
		case b < 0x20:
			if s.state != dcsEntry {
				return s.control(b), n + 1
			}
		case b == 0x7f:
		case b >= 0x80: // no sequence has such a byte: it is the text that follows
			if s.state == dcsEntry {
				s.enter('P', skip)
				continue
			}
			s.state = ground
			return tokNothing, n
		default:
			if t := s.sequence(b); t != tokNothing || s.state == ground {
				return t, n + 1
			}
		}
	}
	return tokNothing, n
}

// ready reports whether the bytes so far end between sequences and characters.
func (s *scanner) ready() bool { return s.state == ground && len(s.partial) == 0 }

// printable reads text, a character or a control.
func (s *scanner) printable(p []byte) (token, int) {
	var buf [utf8.UTFMax]byte
	have, more := copy(buf[:], s.partial), 0
	if have > 0 { // the last piece ended within a character
		more = copy(buf[have:], p)
		p = buf[:have+more]
	}
	switch b := p[0]; {
	case b < 0x20 || b == 0x7f:
		return s.control(b), 1
	case b < 0x7f:
		return tokText, printable(p)
	}
	if !utf8.FullRune(p) {
		s.partial = append(s.partial[:0], p...)
		return tokNothing, len(p) - have
	}
	// What is no UTF-8 is one U+FFFD for each longest beginning of a character, as the Unicode standard recommends.
	r, n := utf8.DecodeRune(p)
	if r == utf8.RuneError && n == 1 {
		for n < len(p) && !utf8.FullRune(p[:n+1]) {
			n++
		}
	}
	if s.r, s.partial = r, s.partial[:0]; isC1(r) {
		return tokNothing, n - have
	}
	return tokChar, n - have
}

// printable is the length of the printable ASCII that b begins with.
func printable(b []byte) (n int) {
	const each, highs, blanks = 0x0101010101010101, 0x8080808080808080, 0x2020202020202020
	for ; n+8 <= len(b); n += 8 { // eight bytes at a time
		word := binary.LittleEndian.Uint64(b[n:])
		if other := (word | (word-blanks)&^word | (word + each)) & highs; other != 0 {
			return n + bits.TrailingZeros64(other)/8
		}
	}
	for n < len(b) && b[n]-0x20 < 0x5f {
		n++
	}
	return n
}

func (s *scanner) begin(state uint8) {
	s.state = state
	s.private, s.inter, s.bad = 0, 0, false
	s.params.n = 0
}

// sequence takes a byte of a sequence that is no control.
func (s *scanner) sequence(b byte) token {
	switch {
	case b < 0x30:
		s.bad = s.bad || s.inter != 0
		s.inter = b
		return tokNothing
	case s.state != escape && b < 0x40:
		s.parameter(b)
		return tokNothing
	case s.state == dcsEntry:
		s.b = b
		return s.device()
	case s.state == escape && s.inter == 0:
		switch b {
		case '[':
			s.begin(csi)
			return tokNothing
		case 'P':
			s.begin(dcsEntry)
			return tokNothing
		case ']':
			return s.enter(b, keep)
		case '_':
			return s.enter(b, head)
		case 'X', '^', 'k':
			return s.enter(b, skip)
		}
	}
	found, permitted := tokCSI, s.permitCSI
	if s.state == escape {
		found, permitted = tokEscape, s.permitEscape
	}
	if s.state, s.b = ground, b; s.bad || !permitted() {
		return tokNothing
	}
	return found
}

// parameter reads a byte of the numbers, or what comes before them.
func (s *scanner) parameter(b byte) {
	switch {
	case s.inter != 0:
		s.bad = true
	case b <= ';':
		s.params.read(b)
	default: // < = > ?
		s.bad = s.bad || s.private != 0 || s.params.n > 0
		s.private = b
	}
}

// device decides by its final byte what is done with a device control string.
func (s *scanner) device() token {
	bare := s.private == 0 && s.inter == 0
	switch {
	case s.bad:
	case s.b == 'q' && bare: // sixel
		s.enter('P', stream)
		return tokBegins
	case s.b == 'q' && s.private == 0 && (s.inter == '$' || s.inter == '+'): // DECRQSS, XTGETTCAP
		return s.enter('P', keep)
	case s.b == 't' && bare && s.params.n == 0: // of tmux;
		return s.enter('P', head)
	}
	return s.enter('P', skip)
}
