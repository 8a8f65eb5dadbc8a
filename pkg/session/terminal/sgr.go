package terminal

import "strconv"

// apply changes the style as SGR says.
func (s *Style) apply(p *params) {
	if p.n == 0 {
		*s = Style{Link: s.Link}
		return
	}
	n := min(p.n, maxParams)
	for i := 0; i < n; i++ {
		v := max(int(p.v[i]), 0)
		subs := i + 1 // the end of what belongs to this one by colons
		for subs < n && p.sub[subs] {
			subs++
		}
		switch {
		case v == 38 || v == 48 || v == 58:
			var c Color
			var ok bool
			if subs > i+1 {
				c, ok = colonColor(p.v[i+1 : subs])
			} else {
				var used int
				c, used, ok = semicolonColor(p.v[i+1 : n])
				subs = i + 1 + used
			}
			if ok {
				s.setColor(v, c)
			}
		case v == 4 && subs > i+1:
			if u := p.v[i+1]; u <= 5 {
				s.Underline = uint8(max(u, 0))
			}
		case subs > i+1: // unknown
		default:
			s.applyOne(v)
		}
		i = subs - 1
	}
}

func (s *Style) setColor(which int, c Color) {
	switch which {
	case 38:
		s.FG = c
	case 48:
		s.BG = c
	case 58:
		s.UL = c
	}
}

// colonColor reads 5:N, 2:R:G:B and 2:SPACE:R:G:B.
func colonColor(v []int32) (Color, bool) {
	switch {
	case v[0] == 5 && len(v) >= 2:
		return indexed(v[1])
	case v[0] == 2 && len(v) == 4:
		return rgb(v[1:4])
	case v[0] == 2 && len(v) >= 5:
		return rgb(v[2:5])
	}
	return 0, false
}

// semicolonColor reads 5;N and 2;R;G;B, and says how many numbers it used.
func semicolonColor(v []int32) (c Color, used int, ok bool) {
	switch {
	case len(v) >= 2 && v[0] == 5:
		c, ok = indexed(v[1])
		return c, 2, ok
	case len(v) >= 4 && v[0] == 2:
		c, ok = rgb(v[1:4])
		return c, 4, ok
	}
	return 0, len(v), false
}

func indexed(v int32) (Color, bool) { return Indexed | Color(max(v, 0)), v <= 255 }

func rgb(v []int32) (Color, bool) {
	c := RGB
	for i, shift := range [...]uint{16, 8, 0} {
		if v[i] > 255 {
			return 0, false
		}
		c |= Color(max(v[i], 0)) << shift
	}
	return c, true
}

func (s *Style) applyOne(v int) {
	switch v {
	case 0:
		*s = Style{Link: s.Link}
	case 1:
		s.Attr |= Bold
	case 2:
		s.Attr |= Faint
	case 3:
		s.Attr |= Italic
	case 4:
		s.Underline = 1
	case 5, 6:
		s.Attr |= Blink
	case 7:
		s.Attr |= Reverse
	case 8:
		s.Attr |= Conceal
	case 9:
		s.Attr |= Strike
	case 21:
		s.Underline = 2
	case 22:
		s.Attr &^= Bold | Faint
	case 23:
		s.Attr &^= Italic
	case 24:
		s.Underline = 0
	case 25:
		s.Attr &^= Blink
	case 27:
		s.Attr &^= Reverse
	case 28:
		s.Attr &^= Conceal
	case 29:
		s.Attr &^= Strike
	case 39:
		s.FG = 0
	case 49:
		s.BG = 0
	case 53:
		s.Attr |= Overline
	case 55:
		s.Attr &^= Overline
	case 59:
		s.UL = 0
	default:
		switch {
		case v >= 30 && v <= 37:
			s.FG = Basic | Color(v-30)
		case v >= 40 && v <= 47:
			s.BG = Basic | Color(v-40)
		case v >= 90 && v <= 97:
			s.FG = Basic | Color(v-90+8)
		case v >= 100 && v <= 107:
			s.BG = Basic | Color(v-100+8)
		}
	}
}

var attrCodes = [...]byte{1, 2, 3, 5, 7, 8, 9, 53} // by bit

// appendStyle appends what turns the style from into to.
func appendStyle(dst []byte, from, to Style) []byte {
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
	if to == (Style{}) {
		return append(dst, "\x1b[m"...)
	}
	start := len(dst)
	dst = append(dst, "\x1b["...)
	if from.Attr&^to.Attr != 0 || from.Underline != 0 && to.Underline == 0 || from.UL != 0 && to.UL == 0 {
		dst = append(dst, "0;"...)
		from = Style{}
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
		dst = append(dst, "\x1b[58"...)
		if to.UL&kindMask == RGB {
			dst = append(dst, ":2:"...)
			dst = appendRGB(dst, to.UL, ':')
		} else {
			dst = append(dst, ":5:"...)
			dst = strconv.AppendInt(dst, int64(to.UL&0xff), 10)
		}
		dst = append(dst, 'm')
	}
	return dst
}

// appendColor appends the numbers for c, base being 30 or 40, and a semicolon.
func appendColor(dst []byte, base int, c Color) []byte {
	v := int(c &^ kindMask)
	switch c & kindMask {
	case Basic:
		if v >= 8 {
			base, v = base+60, v-8
		}
		dst = strconv.AppendInt(dst, int64(base+v), 10)
	case Indexed:
		dst = strconv.AppendInt(dst, int64(base+8), 10)
		dst = append(dst, ";5;"...)
		dst = strconv.AppendInt(dst, int64(v), 10)
	case RGB:
		dst = strconv.AppendInt(dst, int64(base+8), 10)
		dst = append(dst, ";2"...)
		dst = appendRGB(dst, c, ';')
	default:
		dst = strconv.AppendInt(dst, int64(base+9), 10)
	}
	return append(dst, ';')
}

// appendRGB appends the three values, each after a separator.
func appendRGB(dst []byte, c Color, separator byte) []byte {
	for _, shift := range [...]uint{16, 8, 0} {
		dst = append(dst, separator)
		dst = strconv.AppendInt(dst, int64(c>>shift&0xff), 10)
	}
	return dst
}
