package terminal

import "strconv"

// Bounds on the numbers of a sequence, as xterm and most others have them.
const (
	maxParams = 32
	maxParam  = 65535
)

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

// read takes a digit, a colon or a semicolon.
func (p *params) read(b byte) {
	if p.n == 0 {
		p.n, p.v[0], p.sub[0] = 1, -1, false
	}
	switch {
	case p.n > maxParams:
	case b <= '9':
		v := &p.v[p.n-1]
		*v = min(max(*v, 0)*10+int32(b-'0'), maxParam)
	default:
		if p.n++; p.n <= maxParams {
			p.v[p.n-1], p.sub[p.n-1] = -1, b == ':'
		}
	}
}

func (p *params) filter(keep func(int) bool) {
	n := 0
	for i := range min(p.n, maxParams) {
		if keep(int(max(p.v[i], 0))) {
			p.v[n], p.sub[n] = p.v[i], false
			n++
		}
	}
	p.n = n
}

func (p *params) append(dst []byte) []byte {
	for i := range min(p.n, maxParams) {
		if i > 0 && p.sub[i] {
			dst = append(dst, ':')
		} else if i > 0 {
			dst = append(dst, ';')
		}
		if v := p.v[i]; v >= 0 {
			dst = strconv.AppendInt(dst, int64(v), 10)
		}
	}
	return dst
}
