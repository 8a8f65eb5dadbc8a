package terminal

import "unicode/utf8"

// look is how a character looks. The zero value is the terminal's default.
type look struct {
	FG, BG, UL color // foreground, background, underline
	Attr       attrs
	Underline  uint8  // 0 none, 1 single, 2 double, 3 curly, 4 dotted, 5 dashed
	Link       string // of OSC 8: "parameters;URI", or "" for none
}

type attrs uint8

const (
	bold attrs = 1 << iota
	faint
	italic
	blink
	reverse
	conceal
	strike
	overline
)

// color is the default (0), or has its kind in the uppermost byte.
type color uint32

// Kinds of colours. The first 16 of the palette have two: some terminals show bold
// text brighter only where it is coloured by the short codes.
const (
	kindBasic   color = 1 << 24 // 0…15, by SGR 30–37, 40–47, 90–97 and 100–107
	kindIndexed color = 2 << 24 // 0…255, by SGR 38;5 and the like
	kindRGB     color = 3 << 24 // 0xRRGGBB

	kindMask color = 0xff << 24
)

// cell is one place of the screen. text is a character, cluster and an index, or tail.
type cell struct{ text, style uint32 }

const (
	tail    = 0
	cluster = 1 << 31
	padding = cluster // the last column, before a wide character that did not fit: the empty cluster
)

// clusterMax is how long the UTF-8 of one cell may be; further marks are dropped.
const clusterMax = 64

func (t *Terminal) appendText(dst []byte, c cell) []byte {
	switch {
	case c.text == tail:
		return dst
	case c.text&cluster != 0:
		return append(dst, t.look(c.text&^cluster).Link...)
	}
	return utf8.AppendRune(dst, rune(c.text))
}

func (t *Terminal) text(c cell) string {
	var buf [clusterMax]byte
	return string(t.appendText(buf[:0], c))
}

// sync brings what is derived from the pen up to date.
func (t *Terminal) sync() {
	if !t.penDirty {
		return
	}
	t.penID, t.blank, t.penDirty = t.internStyle(t.cur.pen), space, false
	if bg := t.cur.pen.BG; bg != 0 {
		t.blank.style = t.internStyle(look{BG: bg})
	}
}
