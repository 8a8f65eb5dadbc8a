package terminal

import "bytes"

// enter begins a control string.
func (s *scanner) enter(kind byte, way uint8) token {
	s.state, s.kind, s.way = inString, kind, way
	s.over, s.bel, s.escaped = false, false, false
	if s.data = s.data[:0]; cap(s.data) > 2*maxOSC {
		s.data = nil
	}
	return tokNothing
}

// inside reads from p within a string.
func (s *scanner) inside(p []byte) (token, int) {
	if s.escaped {
		return s.afterEscape(p[0])
	}
	n := 0
	for n < len(p) && s.ordinary(p[n]) {
		n++
	}
	if n > 0 {
		switch s.way {
		case stream, wrapped:
			return tokPiece, n
		case head:
			return s.keepHead(p[:n])
		case keep:
			s.keep(p[:n])
		}
		return tokNothing, n
	}
	switch b := p[0]; {
	case b == 0x1b:
		s.escaped = true
	case b == 0x18 || b == 0x1a:
		return s.end(false), 1
	case b == 0x07 && s.kind == ']':
		s.bel = true
		return s.end(true), 1
	}
	return tokNothing, 1
}

// ordinary reports whether a byte is one of those that the string is made of. Of an
// image that is printable ASCII: what else stands there, no terminal takes for data.
func (s *scanner) ordinary(b byte) bool {
	switch s.way {
	case stream:
		return b-0x20 < 0x5f
	case wrapped:
		return b != 0x1b && b != 0x18 && b != 0x1a
	}
	return b >= 0x20 && b != 0x7f
}

// afterEscape takes the byte after an ESC within a string.
func (s *scanner) afterEscape(b byte) (token, int) {
	s.escaped = false
	switch {
	case b == '\\':
		return s.end(true), 1
	case b == 0x1b && s.way == wrapped:
		return tokPiece, 1
	}
	cut := s.end(false)
	s.begin(escape)
	return cut, 0
}

// end ends a string, which counts for nothing if it was cut off. A long OSC is for the clipboard.
func (s *scanner) end(whole bool) token {
	s.state = ground
	switch {
	case s.way == stream || s.way == wrapped:
		return tokEnds
	case whole && s.way != skip && !s.over && (len(s.data) <= maxOSC || bytes.HasPrefix(s.data, []byte("52;"))):
		return tokString
	}
	return tokNothing
}

// keep puts p to what is kept.
func (s *scanner) keep(p []byte) {
	limit := maxOSC
	switch {
	case s.way == head:
		limit = maxHead
	case s.kind == 'P':
		limit = maxDCS
	case s.long:
		limit = maxClipboard + maxHead
	}
	if s.over = s.over || len(s.data)+len(p) > limit; s.over {
		s.data = s.data[:0]
		return
	}
	s.data = append(s.data, p...)
}

// keepHead keeps p up to a semicolon, at which it is known what the string is.
func (s *scanner) keepHead(p []byte) (token, int) {
	n := bytes.IndexByte(p, ';')
	if n < 0 {
		s.keep(p)
		return tokNothing, len(p)
	}
	s.keep(p[:n])
	switch {
	case s.over:
	case s.kind == 'P' && string(s.data) == "mux":
		s.way = wrapped
		return tokBegins, n + 1
	case s.kind == '_' && len(s.data) > 0 && s.data[0] == 'G': // an image of kitty's
		s.way = stream
		return tokBegins, n + 1
	}
	s.way = skip
	return tokNothing, n + 1
}
