package terminal

import "strings"

// Span is a part of a row that looks alike, for who draws a screen by other means than a terminal.
type Span struct {
	Text string
	Wide bool // one character of two columns
	Style
}

// Style is a look in figures. The zero value is the terminal's default.
type Style struct {
	FG, BG    Color
	Bold      bool
	Faint     bool
	Italic    bool
	Underline bool
	Strike    bool
	Reverse   bool
}

// Color is a colour, or none. Index is of the palette of 256 if RGB is false.
type Color struct {
	Set, RGB bool
	Value    uint32 // an index, or 0xRRGGBB
}

// Spans returns what row y shows, from the left, without what is blank at its end. What is concealed is blank.
func (t *Terminal) Spans(y int) (spans []Span) {
	if y < 0 || y >= t.rows {
		return nil
	}
	var text strings.Builder
	var last cell
	begun := false
	flush := func() {
		if begun && text.Len() > 0 {
			spans = append(spans, Span{Text: text.String(), Style: t.look(last.style).plain()})
		}
		text.Reset()
	}
	r := t.scr.rows[y]
	for x := 0; x < t.cols; x++ {
		c := r.get(x)
		if !begun || c.style != last.style {
			flush()
			begun, last = true, c
		}
		if c.text == tail {
			continue
		}
		piece := t.text(c)
		if c.text == padding || t.look(c.style).Attr&conceal != 0 {
			piece = " "
		}
		if x+1 < t.cols && r.get(x+1).text == tail {
			flush()
			spans = append(spans, Span{Text: piece, Wide: true, Style: t.look(c.style).plain()})
			continue
		}
		text.WriteString(piece)
	}
	flush()
	for n := len(spans) - 1; n >= 0 && spans[n].blank(); n-- {
		spans = spans[:n]
	}
	if n := len(spans); n > 0 && spans[n-1].bare() {
		spans[n-1].Text = strings.TrimRight(spans[n-1].Text, " ")
	}
	return spans
}

// blank says whether nothing is to be seen of a span.
func (s Span) blank() bool {
	return strings.Trim(s.Text, " ") == "" && s.bare()
}

// bare says whether blanks of a look show nothing.
func (s Style) bare() bool { return !s.BG.Set && !s.Reverse && !s.Underline && !s.Strike }

func (l look) plain() Style {
	return Style{
		FG: l.FG.plain(), BG: l.BG.plain(), Underline: l.Underline != 0, Bold: l.Attr&bold != 0, Faint: l.Attr&faint != 0,
		Italic: l.Attr&italic != 0, Reverse: l.Attr&reverse != 0, Strike: l.Attr&strike != 0,
	}
}

func (c color) plain() Color {
	switch c & kindMask {
	case kindBasic, kindIndexed:
		return Color{Set: true, Value: uint32(c &^ kindMask)}
	case kindRGB:
		return Color{Set: true, RGB: true, Value: uint32(c &^ kindMask)}
	}
	return Color{}
}
