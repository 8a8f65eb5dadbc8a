package terminal

import "bytes"

const (
	// historyBytes bounds a history's lines, of which the oldest go; dropped ones take half as much.
	historyBytes = 10 << 20
	// maxRowLinks is how many bytes of links a row keeps; further ones are text.
	maxRowLinks = 16 << 10
)

// goesOn ends a line of the history that was wrapped, and "\n" any other. No line contains either.
const goesOn = "\x00\n"

// history is the lines that left the main screen, oldest first, each as it would be sent to
// a terminal: one that is full of colours is not larger than what the program wrote.
type history struct {
	limit, lines int
	text         []byte
	gone         int // bytes that text begins with, of lines that were dropped
}

// keep puts a row that leaves the screen into the history.
func (t *Terminal) keep(r *row) {
	h := &t.history
	if h.limit == 0 {
		return
	}
	h.text = t.appendRow(h.text, r)
	h.added()
}

// added counts a line that text ends with now, and drops the oldest.
func (h *history) added() {
	for h.lines++; h.lines > h.limit || len(h.text)-h.gone > historyBytes; h.lines-- {
		h.gone += bytes.IndexByte(h.text[h.gone:], '\n') + 1
	}
	if h.gone > len(h.text)/3 {
		h.text, h.gone = append(h.text[:0], h.text[h.gone:]...), 0
	}
}

// pop takes the newest line away. It is valid until the next row is kept.
func (h *history) pop() (line []byte, wrapped bool) {
	line = h.text[h.gone : len(h.text)-1]
	line = line[bytes.LastIndexByte(line, '\n')+1:]
	h.text = h.text[:len(h.text)-1-len(line)]
	h.lines--
	return bytes.CutSuffix(line, []byte(goesOn[:1]))
}

// endsWrapped reports whether the newest line goes on in the screen's first row.
func (h *history) endsWrapped() bool { return bytes.HasSuffix(h.text[h.gone:], []byte(goesOn)) }

// appendRow appends a row as a line of the history, which begins and ends with the
// default style. Without wrapping, what is empty at its end is left out.
func (t *Terminal) appendRow(dst []byte, r *row) []byte {
	cells, end := r.cells, goesOn
	if !r.wrapped {
		cells, end = trimmed(cells, r.fill), "\n"
	}
	id, pen, links := uint32(0), look{}, 0
	for _, c := range cells {
		if c.style != id {
			to := t.look(c.style)
			if to.Link != "" && to.Link != pen.Link {
				if links += len(to.Link); links > maxRowLinks {
					to.Link = ""
				}
			}
			dst = appendStyle(dst, pen, to)
			id, pen = c.style, to
		}
		if c.text-1 < 0x7f {
			dst = append(dst, byte(c.text))
		} else {
			dst = t.appendText(dst, c)
		}
	}
	if r.fill != space {
		fill := t.look(r.fill.style)
		dst = append(appendStyle(dst, pen, fill), "\x1b[K"...)
		pen = fill
	}
	return append(appendStyle(dst, pen, look{}), end...)
}

// History returns what scrolled away, what the main screen shows, and then what the alternate screen does if it is the one
// that is seen: a program that draws there has nothing else. Each line is ended by "\n", those that were wrapped are put
// together again. With styles it contains colours, attributes and links, else it is plain text.
func (t *Terminal) History(withStyles bool) []byte {
	out := bytes.Clone(t.history.text[t.history.gone:])
	for _, r := range t.main.rows[:t.main.used(0)] {
		out = t.appendRow(out, r)
	}
	if t.alternate() {
		if bytes.HasSuffix(out, []byte(goesOn)) {
			out = append(out, '\n')
		}
		for _, r := range t.alt.rows[:t.alt.used(0)] {
			out = t.appendRow(out, r)
		}
	}
	if bytes.HasSuffix(out, []byte(goesOn)) {
		out = append(out, '\n')
	}
	out = bytes.ReplaceAll(out, []byte(goesOn), nil)
	if !withStyles {
		f := Filter{Plain: true}
		out = f.Write(nil, out)
	}
	return out
}
