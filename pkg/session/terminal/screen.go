package terminal

import "slices"

// row is one line of the screen. Cells from len(cells) on are all equal to fill, so
// that erasing a row, and scrolling in an empty one, takes no time for its width.
type row struct {
	cells   []cell
	fill    cell
	wrapped bool // the text goes on in the next row
}

// screen is the main or the alternate screen.
type screen struct {
	rows  []*row
	saved cursor // by DECSC
	keys  keyboard
}

var space = cell{text: ' '}

func newScreen(rows int) *screen {
	return &screen{saved: newCursor(), rows: padded(nil, rows)}
}

// padded appends empty rows up to so many.
func padded(rows []*row, n int) []*row {
	for len(rows) < n {
		rows = append(rows, &row{fill: space})
	}
	return rows
}

func (r *row) get(x int) cell {
	if x < len(r.cells) {
		return r.cells[x]
	}
	return r.fill
}

// grow makes the cells up to column n, exclusive, ones that can be written.
func (r *row) grow(n int) {
	if have := len(r.cells); have < n {
		r.cells = slices.Grow(r.cells, n-have)[:n]
		fill(r.cells[have:], r.fill)
	}
}

func fill(cells []cell, with cell) {
	for i := range cells {
		cells[i] = with
	}
}

func (r *row) empty() bool { return len(r.cells) == 0 && r.fill == space }

// trimmed are the cells without those at their end that are equal to fill.
func trimmed(cells []cell, fill cell) []cell {
	for len(cells) > 0 && cells[len(cells)-1] == fill {
		cells = cells[:len(cells)-1]
	}
	return cells
}

// columns is how many the character at x takes.
func columns(cells []cell, x int) int {
	if x+1 < len(cells) && cells[x+1].text == tail {
		return 2
	}
	return 1
}

// start is the first column of the character at x.
func (r *row) start(x int) int {
	if x > 0 && r.get(x).text == tail {
		return x - 1
	}
	return x
}

func (r *row) clear(blank cell) { r.cells, r.fill, r.wrapped = r.cells[:0], blank, false }

// part keeps wide characters whole: if a boundary before column x goes through one, both its halves become spaces.
func (r *row) part(x int) {
	if x > 0 && x < len(r.cells) && r.cells[x].text == tail {
		r.cells[x].text = ' '
		r.cells[x-1].text = ' '
	}
}

// erase makes the columns from…to-1 of a row that is cols wide blank.
func (r *row) erase(from, to, cols int, blank cell) {
	r.part(from)
	if to >= cols {
		r.grow(from)
		r.cells, r.fill, r.wrapped = r.cells[:from], blank, false
		return
	}
	r.part(to)
	r.grow(to)
	fill(r.cells[from:to], blank)
}

// insert shifts the columns from x on to the right by n.
func (r *row) insert(x, n, cols int, blank cell) {
	n = min(n, cols-x)
	r.part(x)
	r.grow(cols)
	r.part(cols - n)
	copy(r.cells[x+n:cols], r.cells[x:cols-n])
	fill(r.cells[x:x+n], blank)
	r.wrapped = false
}

// remove shifts the columns behind x+n to the left by n.
func (r *row) remove(x, n, cols int, blank cell) {
	n = min(n, cols-x)
	r.part(x)
	r.part(x + n)
	r.grow(cols)
	copy(r.cells[x:], r.cells[x+n:])
	if r.cells = r.cells[:cols-n]; r.fill != blank {
		fill(r.cells[cols-n:cols], blank)
		r.cells = r.cells[:cols]
	}
	r.wrapped = false
}

// scrollUp moves the rows top…bottom up by n. Those that leave are the caller's to keep before.
func (s *screen) scrollUp(top, bottom, n int, fill cell) {
	s.part(top)
	region := s.rows[top : bottom+1]
	n = min(n, len(region))
	rotate(region, n)
	for _, r := range region[len(region)-n:] {
		r.clear(fill)
	}
}

// scrollDown moves the rows top…bottom down by n.
func (s *screen) scrollDown(top, bottom, n int, fill cell) {
	region := s.rows[top : bottom+1]
	n = min(n, len(region))
	rotate(region, len(region)-n)
	for _, r := range region[:n] {
		r.clear(fill)
	}
	s.part(top)
	s.part(bottom + 1)
}

// used is how many rows there are, at least some, without the empty ones at the end.
func (s *screen) used(least int) int {
	n := len(s.rows)
	for n > least && s.rows[n-1].empty() {
		n--
	}
	return n
}

// part says that row y no longer goes on from the one before it.
func (s *screen) part(y int) {
	if y > 0 {
		s.rows[y-1].wrapped = false
	}
}

// rotate brings the first n rows to the end.
func rotate(rows []*row, n int) {
	first := append(make([]*row, 0, 4), rows[:n]...) // by so much, no allocation
	copy(rows, rows[n:])
	copy(rows[len(rows)-n:], first)
}
