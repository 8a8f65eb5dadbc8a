package terminal

import (
	"bytes"
	"unicode/utf8"
)

// The states of Paul Williams' VT500 parser (vt100.net/emu/dec_ansi_parser), those
// of strings that are not kept put together.
const (
	ground = iota
	escape
	escapeIntermediate
	csi
	oscString
	dcsEntry
	dcsString
	skipString // SOS, PM, APC, and device control strings that mean nothing here
)

// Bounds on what is kept of one sequence. What is longer is read over.
const (
	maxParams = 32
	maxParam  = 65535
	maxOSC    = 8192
	maxDCS    = 256
)

type parser struct {
	state   int
	partial []byte // of a character, at most 3 bytes
	private byte   // of < = > ?, or 0
	inter   byte   // the intermediate byte, or 0
	bad     bool   // more intermediate bytes than mean anything
	params  params
	data    []byte // of a string
	over    bool   // the string is longer than is kept
}

// params are the numbers of a control sequence.
type params struct {
	v   [maxParams]int32 // -1 where left out
	sub [maxParams]bool  // came after a colon
	n   int
}

// get returns parameter i, or def where it is left out or 0.
func (p *params) get(i, def int) int {
	if i < p.n && p.v[i] > 0 {
		return int(p.v[i])
	}
	return def
}

func (p *params) digit(b byte) {
	if p.n == 0 {
		p.n, p.v[0], p.sub[0] = 1, -1, false
	}
	if p.n > maxParams {
		return
	}
	v := &p.v[p.n-1]
	*v = min(max(*v, 0)*10+int32(b-'0'), maxParam)
}

func (p *params) separator(colon bool) {
	if p.n == 0 {
		p.n, p.v[0], p.sub[0] = 1, -1, false
	}
	if p.n < maxParams {
		p.v[p.n], p.sub[p.n] = -1, colon
	}
	p.n = min(p.n+1, maxParams+1)
}

// Write lets the terminal read p. Sequences and characters may be split anywhere.
// It never fails.
func (t *Terminal) Write(p []byte) (int, error) {
	total := len(p)
	if len(t.parser.partial) > 0 {
		p = t.resume(p)
	}
	for len(p) > 0 {
		if t.parser.state == ground {
			p = p[t.plain(p):]
			continue
		}
		p = p[t.sequence(p):]
	}
	return total, nil
}

// Ground reports whether the bytes so far end between sequences and characters, so
// that a client can go on with the raw bytes from here.
func (t *Terminal) Ground() bool { return t.parser.state == ground && len(t.parser.partial) == 0 }

// plain reads from p, in the ground state, one run of characters or one control,
// and returns its length.
func (t *Terminal) plain(p []byte) int {
	b := p[0]
	switch {
	case b == 0x1b:
		t.parser.begin(escape)
		return 1
	case b < 0x20:
		t.control(b)
		return 1
	case b < 0x7f:
		n := 1
		for n < len(p) && p[n]-0x20 < 0x5f {
			n++
		}
		t.ascii(p[:n])
		return n
	case b == 0x7f:
		return 1
	}
	r, n, ok := decode(p)
	if !ok {
		t.parser.partial = append(t.parser.partial[:0], p...)
		return len(p)
	}
	t.print(r)
	return n
}

// resume reads on where the last Write ended within a character, and returns what
// comes after it.
func (t *Terminal) resume(p []byte) []byte {
	var buf [utf8.UTFMax]byte
	have := copy(buf[:], t.parser.partial)
	more := copy(buf[have:], p)
	r, n, ok := decode(buf[:have+more])
	if !ok {
		t.parser.partial = append(t.parser.partial, p[:more]...)
		return p[more:]
	}
	t.parser.partial = t.parser.partial[:0]
	t.print(r)
	return p[n-have:]
}

// decode returns the first character of p, which does not begin with ASCII, and its
// length; not ok if p ends within it. What is no UTF-8 is one U+FFFD for each longest
// beginning of a character, as the Unicode standard recommends.
func decode(p []byte) (r rune, n int, ok bool) {
	if !utf8.FullRune(p) {
		return 0, 0, false
	}
	r, n = utf8.DecodeRune(p)
	if r == utf8.RuneError && n == 1 {
		for n < len(p) && !utf8.FullRune(p[:n+1]) {
			n++
		}
	}
	return r, n, true
}

func (s *parser) begin(state int) {
	s.state = state
	s.private, s.inter, s.bad = 0, 0, false
	s.params.n = 0
	s.data, s.over = s.data[:0], false
}

// sequence reads from p within a sequence, and returns how much.
func (t *Terminal) sequence(p []byte) int {
	s := &t.parser
	if s.state >= oscString && s.state != dcsEntry {
		return t.str(p)
	}
	b := p[0]
	switch {
	case b == 0x1b:
		s.begin(escape)
		return 1
	case b == 0x18 || b == 0x1a:
		s.state = ground
		return 1
	case b < 0x20:
		if s.state != dcsEntry {
			t.control(b)
		}
		return 1
	case b == 0x7f:
		return 1
	case b >= 0x80: // no sequence has such a byte; the character is shown
		s.state = ground
		return 0
	}
	switch s.state {
	case escape, escapeIntermediate:
		t.escapeByte(b)
	case csi:
		t.csiByte(b)
	case dcsEntry:
		t.dcsByte(b)
	}
	return 1
}

func (t *Terminal) escapeByte(b byte) {
	s := &t.parser
	if b < 0x30 {
		s.bad = s.bad || s.inter != 0
		s.inter = b
		s.state = escapeIntermediate
		return
	}
	if s.state == escape {
		switch b {
		case '[':
			s.begin(csi)
			return
		case ']':
			s.begin(oscString)
			return
		case 'P':
			s.begin(dcsEntry)
			return
		case 'X', '^', '_':
			s.begin(skipString)
			return
		}
	}
	s.state = ground
	if !s.bad {
		t.escapeSequence(s.inter, b)
	}
}

func (t *Terminal) csiByte(b byte) {
	s := &t.parser
	if !s.parameter(b) {
		return
	}
	s.state = ground
	if !s.bad {
		t.controlSequence(b)
	}
}

// parameter reads what comes before the final byte of a control sequence or device
// control string; it is true for the final byte.
func (s *parser) parameter(b byte) bool {
	switch {
	case b >= 0x40:
		return true
	case b < 0x30:
		s.bad = s.bad || s.inter != 0
		s.inter = b
	case s.inter != 0:
		s.bad = true
	case b <= '9':
		s.params.digit(b)
	case b <= ';':
		s.params.separator(b == ':')
	default: // < = > ?
		s.bad = s.bad || s.private != 0 || s.params.n > 0
		s.private = b
	}
	return false
}

func (t *Terminal) dcsByte(b byte) {
	s := &t.parser
	if !s.parameter(b) {
		return
	}
	s.state = skipString
	if b == 'q' && !s.bad && (s.inter == '$' || s.inter == '+') {
		s.state = dcsString
	}
}

// str reads from p within a string, and returns how much. It ends by BEL (only OSC),
// or by ESC, which begins ST or whatever else comes.
func (t *Terminal) str(p []byte) int {
	s := &t.parser
	n := 0
	for n < len(p) && (p[n] >= 0x20 || !stringEnd(p[n], s.state)) {
		n++
	}
	limit := 0
	switch s.state {
	case oscString:
		limit = maxOSC
	case dcsString:
		limit = maxDCS
	}
	if len(s.data)+n > limit {
		s.over = true
		s.data = s.data[:0]
	} else if !s.over {
		s.data = append(s.data, p[:n]...)
	}
	if n == len(p) {
		return n
	}
	state, data, over := s.state, s.data, s.over
	if p[n] == 0x1b {
		defer s.begin(escape)
	} else {
		s.state = ground
	}
	if over || p[n] == 0x18 || p[n] == 0x1a {
		return n + 1
	}
	switch state {
	case oscString:
		t.osc(bytes.Trim(data, "\r\n"))
	case dcsString:
		t.requestStatus(data)
	}
	return n + 1
}

func stringEnd(b byte, state int) bool {
	return b == 0x1b || b == 0x18 || b == 0x1a || b == 0x07 && state == oscString
}
