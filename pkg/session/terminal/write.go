package terminal

import "bytes"

// Write lets the terminal read p. Sequences and characters may be split anywhere.
// It never fails. It does no more than a person's terminal may be told.
func (t *Terminal) Write(p []byte) (int, error) {
	total := len(p)
	s := &t.scan
	left := total // of p, behind what flood looked at
	for len(p) > 0 {
		t.sweep()
		what, n := s.next(p)
		switch what {
		case tokText:
			t.ascii(p[:n])
		case tokChar:
			t.print(s.r)
		case tokControl:
			if t.control(s.b); s.b == '\n' && len(p) <= left {
				taken, looked := t.flood(p[n:])
				left = len(p) - n - looked
				n += taken
			}
		case tokEscape:
			t.escapeSequence(s.inter, s.b)
		case tokCSI:
			if s.do != nil {
				if s.b != 'b' { // which repeats it
					t.last = 0
				}
				s.do(t, &s.params)
			}
		case tokString:
			switch s.kind {
			case ']':
				t.osc(s.data)
			case 'P':
				t.requestStatus(s.data)
			}
		}
		p = p[n:]
	}
	return total, nil
}

// Filter returns a filter that goes on in the stream where the terminal is, also within
// a sequence. A string of which a part has been passed on, such as an image, ends there.
func (t *Terminal) Filter() Filter {
	f := Filter{scan: t.scan}
	f.scan.partial, f.scan.data = bytes.Clone(t.scan.partial), bytes.Clone(t.scan.data)
	return f
}
