package terminal

import "strconv"

// apply changes the look as SGR says.
func (s *look) apply(p *params) {
	if p.n == 0 {
		s.applyOne(0)
		return
	}
	n := min(p.n, maxParams)
	for i := 0; i < n; i++ {
		v := max(int(p.v[i]), 0)
		end := i + 1 // of what belongs to this one by colons
		for end < n && p.sub[end] {
			end++
		}
		colons := end > i+1
		switch {
		case v == 38 || v == 48 || v == 58:
			last := end
			if !colons {
				last = n
			}
			c, used, ok := readColor(p.v[i+1:last], colons)
			if ok {
				*s.color(v) = c
			}
			if !colons {
				end += used
			}
		case v == 4 && colons:
			if u := p.v[i+1]; u <= 5 {
				s.Underline = uint8(max(u, 0))
			}
		case !colons:
			s.applyOne(v)
		}
		i = end - 1
	}
}

// color is what a code below 60 is about.
func (s *look) color(code int) *color {
	return [...]*color{3: &s.FG, 4: &s.BG, 5: &s.UL}[code/10]
}

// readColor reads 5;N and 2;R;G;B, and says how many numbers it used. With colons, a space's number may come before R.
func readColor(v []int32, colons bool) (c color, used int, ok bool) {
	switch {
	case len(v) >= 2 && v[0] == 5:
		return kindIndexed | color(max(v[1], 0)), 2, v[1] <= 255
	case len(v) < 4 || v[0] != 2:
		return 0, len(v), false
	case colons && len(v) > 4:
		v = v[1:]
	}
	c = kindRGB
	for i, shift := range [...]uint{16, 8, 0} {
		if v[i+1] > 255 {
			return 0, 4, false
		}
		c |= color(max(v[i+1], 0)) << shift
	}
	return c, 4, true
}

// What each code switches on and off.
var (
	attrsOn  = [56]attrs{1: bold, 2: faint, 3: italic, 5: blink, 6: blink, 7: reverse, 8: conceal, 9: strike, 53: overline}
	attrsOff = [56]attrs{22: bold | faint, 23: italic, 25: blink, 27: reverse, 28: conceal, 29: strike, 55: overline}
)

func (s *look) applyOne(v int) {
	switch {
	case v == 0:
		*s = look{Link: s.Link}
	case v == 4:
		s.Underline = 1
	case v == 21:
		s.Underline = 2
	case v == 24:
		s.Underline = 0
	case v >= 30 && v <= 37 || v >= 40 && v <= 47:
		*s.color(v) = kindBasic | color(v%10)
	case v == 39 || v == 49 || v == 59:
		*s.color(v) = 0
	case v >= 90 && v <= 97 || v >= 100 && v <= 107:
		*s.color(v - 60) = kindBasic | color(v%10+8)
	case v < len(attrsOn):
		s.Attr = s.Attr&^attrsOff[v] | attrsOn[v]
	}
}

var attrCodes = [...]byte{1, 2, 3, 5, 7, 8, 9, 53} // by bit

// appendStyle appends what turns the style from into to.
func appendStyle(dst []byte, from, to look) []byte {
	if from == to {
		return dst
	}
	if from.Link != to.Link {
		dst = append(dst, "\x1b]8;"...)
		if to.Link == "" {
			dst = append(dst, ';')
		}
		dst = append(append(dst, to.Link...), "\x1b\\"...)
	}
	from.Link, to.Link = "", ""
	if from == to {
		return dst
	}
	if to == (look{}) {
		return append(dst, "\x1b[m"...)
	}
	start := len(dst)
	dst = append(dst, "\x1b["...)
	if from.Attr&^to.Attr != 0 || from.Underline != 0 && to.Underline == 0 || from.UL != 0 && to.UL == 0 {
		dst = append(dst, "0;"...)
		from = look{}
	}
	for bit, code := range attrCodes {
		if (to.Attr&^from.Attr)&(1<<bit) != 0 {
			dst = append(strconv.AppendInt(dst, int64(code), 10), ';')
		}
	}
	if to.Underline != from.Underline && to.Underline == 1 {
		dst = append(dst, "4;"...)
	}
	if to.FG != from.FG {
		dst = appendColor(dst, 30, to.FG)
	}
	if to.BG != from.BG {
		dst = appendColor(dst, 40, to.BG)
	}
	if len(dst) > start+2 {
		dst[len(dst)-1] = 'm'
	} else {
		dst = dst[:start]
	}
	// What not all terminals know comes in sequences of its own.
	if to.Underline != from.Underline && to.Underline > 1 {
		dst = append(dst, "\x1b[4:"...)
		dst = append(dst, '0'+to.Underline, 'm')
	}
	if to.UL != from.UL {
		dst = append(appendExtended(append(dst, "\x1b["...), 58, to.UL, ':'), 'm')
	}
	return dst
}

// appendColor appends the numbers for c, base being 30 or 40, and a semicolon.
func appendColor(dst []byte, base int, c color) []byte {
	code := base + 9
	switch v := int(c &^ kindMask); {
	case c&kindMask > kindBasic:
		return append(appendExtended(dst, base+8, c, ';'), ';')
	case c != 0 && v < 8:
		code = base + v
	case c != 0:
		code = base + 60 + v - 8
	}
	return append(strconv.AppendInt(dst, int64(code), 10), ';')
}

// appendExtended appends code and a colour that has numbers of its own.
func appendExtended(dst []byte, code int, c color, separator byte) []byte {
	dst = append(strconv.AppendInt(dst, int64(code), 10), separator)
	if c&kindMask == kindIndexed {
		return strconv.AppendInt(append(dst, '5', separator), int64(c&0xff), 10)
	}
	if dst = append(dst, '2'); separator == ':' {
		dst = append(dst, ':') // the space of colours, left out
	}
	for _, shift := range [...]uint{16, 8, 0} {
		dst = strconv.AppendInt(append(dst, separator), int64(c>>shift&0xff), 10)
	}
	return dst
}
