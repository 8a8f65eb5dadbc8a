package terminal

import (
	"slices"
	"unicode/utf8"
)

func (e *restorer) screen(s *screen) {
	e.above = max(0, e.t.cur.y-e.rows+1)
	joined := false // the cursor is behind the row before, which this one goes on with
	for y, r := range s.rows[e.above:min(len(s.rows), e.above+e.rows)] {
		if !joined {
			if r.empty() && !r.wrapped {
				continue
			}
			e.put("\x1b[%dH", y+1)
		}
		next := e.above + y + 1
		goesOn := r.wrapped && e.cols == e.t.cols && next < len(s.rows) && y+1 < e.rows
		following := &row{fill: space}
		if next < len(s.rows) {
			following = s.rows[next]
		}
		e.row(r, y, joined, goesOn, following)
		joined = goesOn
	}
	for _, p := range slices.Backward(e.later) {
		e.put("\x1b[%d;%dH", p.y+1, p.x+1)
		e.cell(p.c)
	}
	e.later = nil
	e.pen(look{})
}

// joins reports whether the other terminal would draw two cells that follow each other as one.
func (e *restorer) joins(c, next cell) bool {
	if c.text < utf8.RuneSelf || next.text < utf8.RuneSelf {
		return false
	}
	first, _ := utf8.DecodeRuneInString(e.t.text(next))
	return first >= utf8.RuneSelf && joins(e.t.text(c), first)
}

// startsWide reports whether a row is drawn beginning with what does not fit into one column: not a narrow character
// that became an emoji by what follows, nor one for which spaces are drawn at first.
func (e *restorer) startsWide(r *row) bool {
	first, _ := utf8.DecodeRuneInString(e.t.text(r.get(0)))
	return columns(r.cells, 0) == 2 && width(first) == 2 && e.t.cols > 2 && !e.joins(r.get(0), r.get(2))
}

// row draws a row: at least one cell if it is joined to the one before, and all if it
// goes on in the next, so that the other terminal wraps it by itself.
func (e *restorer) row(r *row, y int, joined, goesOn bool, following *row) {
	width := min(e.t.cols, e.cols)
	end := width
	if !goesOn {
		end = len(trimmed(r.cells[:min(len(r.cells), width)], r.fill))
	}
	if joined {
		end = max(end, 1)
	}
	for x, w := 0, 0; x < end; x += w {
		c := r.get(x)
		w = columns(r.cells, x)
		next := following.get(0)
		if x+w < width && r.get(x+w).text != padding {
			next = r.get(x + w)
		}
		joins := e.joins(c, next)
		if (joins || c.text&cluster != 0 && c.text != padding) && !e.afford(&e.marks, len(e.t.text(c))+markCost, maxMarks) {
			joins, c.text = false, '?'
			for range w - 1 {
				e.cell(c)
			}
		}
		switch {
		case w == 2 && x+1 == width:
			c.text = ' ' // half of it is beyond the edge
		case c.text == padding && goesOn && e.startsWide(following):
			continue // the other terminal leaves the column free itself
		case joins:
			e.later = append(e.later, placed{x, y, c})
			c.text = ' '
			for range w - 1 {
				e.cell(c)
			}
		}
		e.cell(c)
		if c.text&cluster != 0 && x+w < end && !goesOn {
			e.put("\x1b[%dG", x+w+1) // terminals differ in the width of what is composed
		}
	}
	if end < width && r.fill != space {
		e.pen(e.t.look(r.fill.style))
		e.put("\x1b[K")
	}
}
