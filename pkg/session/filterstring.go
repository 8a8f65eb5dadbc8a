package session

import (
	"bytes"
	"strconv"
)

// inside takes a byte of a control string, which ST ends, and BEL an OSC too;
// CAN and SUB cut it off.
func (f *filter) inside(dst []byte, c byte) []byte {
	switch {
	case c == can || c == sub || c == bel && f.lead == ']':
		dst, passed := f.finish(dst)
		f.state, f.held = inText, f.held[:0]
		if passed || c != bel {
			dst = append(dst, c)
		}
		return dst
	case f.state == inString:
		return append(dst, c)
	case f.state == inDrop:
		return dst
	}
	f.held = append(f.held, c)
	if f.state == inStore {
		if len(f.held) > maxClipboard+maxHead {
			f.state = inDrop
		}
		return dst
	}
	return f.judge(dst)
}

// judge looks at the head of a control string, after each byte of it.
func (f *filter) judge(dst []byte) []byte {
	body := f.body()
	c := body[len(body)-1]
	switch f.lead {
	case ']':
		if c >= '0' && c <= '9' || c < 0x20 {
			break
		}
		number, err := strconv.Atoi(string(digits(body)))
		switch {
		case err == nil && (number == 52 || number == 5522), err == nil && f.noQueries && colour(number):
			f.state = inStore
			return dst
		}
		return f.pass(dst)
	case 'P':
		const tmux = "tmux;"
		if len(body) <= len(tmux) && string(body) == tmux[:len(body)] {
			if len(body) < len(tmux) {
				return dst
			}
			return f.enterTmux(dst)
		}
		if c < 0x40 {
			break
		}
		if c == 'q' && f.noQueries && bytes.ContainsAny(body, "$+") { // DECRQSS, XTGETTCAP
			f.state = inDrop
			return dst
		}
		return f.pass(dst)
	case '_':
		if c != ';' && body[0] == 'G' {
			break
		}
		return f.pass(dst)
	}
	if len(body) > maxHead { // nothing honest is like that
		f.state = inDrop
	}
	return dst
}

// pass lets the rest of the string through.
func (f *filter) pass(dst []byte) []byte {
	if f.lead == '_' && bytes.Contains(f.held, []byte("a=q")) {
		f.state = inDrop
		return dst
	}
	f.state = inString
	return append(dst, f.held...)
}

// finish judges a string at its end, and reports whether it passed.
func (f *filter) finish(dst []byte) (_ []byte, passed bool) {
	switch f.state {
	case inString:
		return dst, true
	case inDrop:
		return dst, false
	case inHead:
		if f.lead == '_' && bytes.Contains(f.held, []byte("a=q")) {
			return dst, false
		}
		return append(dst, f.held...), true
	}
	number, text, _ := bytes.Cut(f.body(), []byte{';'})
	switch n, _ := strconv.Atoi(string(digits(number))); n {
	case 52:
		// What is not base64 clears the clipboard; a question mark reads it.
		if f.noClipboard || bytes.IndexByte(text, '?') >= 0 {
			return dst, false
		}
	case 5522:
		if f.noClipboard || bytes.Contains(text, []byte("read")) {
			return dst, false
		}
	default:
		if bytes.IndexByte(text, '?') >= 0 {
			return dst, false
		}
	}
	return append(dst, f.held...), true
}

// body is what is held of the string, without its introducer: ESC and a byte, a
// C1 control, or that as UTF-8.
func (f *filter) body() []byte {
	if f.held[0] == esc || f.held[0] == 0xc2 {
		return f.held[2:]
	}
	return f.held[1:]
}

// digits is the number that an OSC begins with. Terminals ignore control
// characters in it.
func digits(body []byte) []byte {
	var n []byte
	for _, c := range body {
		if c >= 0x20 && (c < '0' || c > '9') {
			break
		}
		if c >= '0' {
			n = append(n, c)
		}
	}
	return n
}

// colour says whether an OSC of this number may ask for a colour or a font.
func colour(number int) bool {
	return number == 4 || number == 5 || number >= 10 && number <= 19 || number == 21 || number == 22 || number == 50
}

// enterTmux begins a stream that tmux hands on to the terminal that it runs in.
// Each ESC of it is doubled.
func (f *filter) enterTmux(dst []byte) []byte {
	if f.depth == maxDepth {
		f.state = inDrop
		return dst
	}
	f.inner = &filter{noClipboard: f.noClipboard, noQueries: f.noQueries, depth: f.depth + 1}
	f.state, f.escape = inTmux, false
	return append(dst, f.held...)
}

func (f *filter) tmux(dst []byte, c byte) []byte {
	if f.escape {
		f.escape = false
		if c == esc {
			return f.throughTmux(dst, c)
		}
		// ST, or a sequence that cuts the string off.
		f.inner = nil
		f.state, f.held = inEscape, append(f.held[:0], esc)
		return f.step(dst, c)
	}
	switch c {
	case esc:
		f.escape = true
		return dst
	case can, sub:
		f.state, f.inner, f.held = inText, nil, f.held[:0]
		return append(dst, c)
	}
	return f.throughTmux(dst, c)
}

func (f *filter) throughTmux(dst []byte, c byte) []byte {
	f.passed = f.inner.write(f.passed[:0], []byte{c})
	for _, b := range f.passed {
		if b == esc {
			dst = append(dst, esc)
		}
		dst = append(dst, b)
	}
	return dst
}
