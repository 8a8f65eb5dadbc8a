package terminal

const (
	chunkSize    = 64 << 10
	historyBytes = 16 << 20 // of chunks; the oldest lines go when there are more
)

// history is the lines that left the main screen, oldest first. A line is kept as it
// would be sent to a terminal, so one that is full of colours is not larger than what
// the program wrote. Lines are in chunks, so that dropping the oldest is cheap.
type history struct {
	limit  int // lines
	lines  int
	bytes  int // capacity of the chunks
	chunks []*chunk
	spare  *chunk
	buf    []byte
}

type chunk struct {
	data  []byte
	ends  []uint32 // where each line ends in data; the highest bit says that it is wrapped
	first int      // line that is the oldest
}

const wrappedBit = 1 << 31

func (h *history) clear() {
	h.lines, h.bytes, h.chunks = 0, 0, nil
}

// push adds a line, which is copied.
func (h *history) push(line []byte, wrapped bool) {
	if h.limit == 0 {
		return
	}
	c := h.last()
	if c == nil || len(c.data)+len(line) > cap(c.data) {
		c = h.newChunk(len(line))
	}
	c.data = append(c.data, line...)
	end := uint32(len(c.data))
	if wrapped {
		end |= wrappedBit
	}
	c.ends = append(c.ends, end)
	h.lines++
	for h.lines > h.limit || h.bytes > historyBytes && len(h.chunks) > 1 {
		h.drop()
	}
}

func (h *history) last() *chunk {
	if len(h.chunks) == 0 {
		return nil
	}
	return h.chunks[len(h.chunks)-1]
}

func (h *history) newChunk(size int) *chunk {
	c := h.spare
	h.spare = nil
	if c == nil || cap(c.data) < size {
		c = &chunk{data: make([]byte, 0, max(size, chunkSize))}
	}
	h.chunks = append(h.chunks, c)
	h.bytes += cap(c.data)
	return c
}

// drop forgets the oldest line.
func (h *history) drop() {
	c := h.chunks[0]
	c.first++
	h.lines--
	if c.first < len(c.ends) {
		return
	}
	h.chunks = append(h.chunks[:0], h.chunks[1:]...)
	h.bytes -= cap(c.data)
	h.release(c)
}

func (h *history) release(c *chunk) {
	if cap(c.data) == chunkSize {
		c.data, c.ends, c.first = c.data[:0], c.ends[:0], 0
		h.spare = c
	}
}

// pop takes the newest line away and returns it; it is valid until the next push.
func (h *history) pop() (line []byte, wrapped bool) {
	c := h.last()
	n := len(c.ends) - 1
	line, wrapped = c.line(n)
	c.ends = c.ends[:n]
	c.data = c.data[:len(c.data)-len(line)]
	h.lines--
	if n == c.first {
		h.chunks = h.chunks[:len(h.chunks)-1]
		h.bytes -= cap(c.data)
	}
	return line, wrapped
}

// endsWrapped reports whether the newest line goes on in the screen's first row.
func (h *history) endsWrapped() bool {
	c := h.last()
	return c.ends[len(c.ends)-1]&wrappedBit != 0
}

func (c *chunk) line(i int) (line []byte, wrapped bool) {
	start := uint32(0)
	if i > 0 {
		start = c.ends[i-1] &^ wrappedBit
	}
	return c.data[start : c.ends[i]&^wrappedBit], c.ends[i]&wrappedBit != 0
}

// keep puts a row that leaves the screen into the history.
func (t *Terminal) keep(r *row) {
	if t.history.limit > 0 {
		t.history.buf = t.appendRow(t.history.buf[:0], r)
		t.history.push(t.history.buf, r.wrapped)
	}
}

// appendRow appends a row as it would be sent to a terminal, beginning and ending with
// the default style. Without wrapping, what is empty at its end is left out.
func (t *Terminal) appendRow(dst []byte, r *row) []byte {
	cells := r.cells
	if !r.wrapped {
		for len(cells) > 0 && cells[len(cells)-1] == r.fill {
			cells = cells[:len(cells)-1]
		}
	}
	id, pen, links := uint32(0), look{}, 0
	for _, c := range cells {
		if c.style != id {
			to := t.styles.value(c.style)
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
		fill := t.styles.value(r.fill.style)
		dst = append(appendStyle(dst, pen, fill), "\x1b[K"...)
		pen = fill
	}
	return appendStyle(dst, pen, look{})
}

// maxRowLinks is how many bytes of links a row keeps; further ones are text.
const maxRowLinks = 16 << 10

// History returns what scrolled away and then what the main screen shows, each line
// ended by "\n", those that were wrapped put together again. With styles it contains
// colours, attributes and links, else it is plain text.
func (t *Terminal) History(withStyles bool) []byte {
	var out []byte
	add := func(line []byte, wrapped bool) {
		if withStyles {
			out = append(out, line...)
		} else {
			out = appendPlain(out, line)
		}
		if !wrapped {
			out = append(out, '\n')
		}
	}
	for _, c := range t.history.chunks {
		for i := c.first; i < len(c.ends); i++ {
			add(c.line(i))
		}
	}
	rows := t.main.rows
	for len(rows) > 0 && rows[len(rows)-1].empty() {
		rows = rows[:len(rows)-1]
	}
	var buf []byte
	for i, r := range rows {
		buf = t.appendRow(buf[:0], r)
		add(buf, r.wrapped && i < len(rows)-1)
	}
	return out
}

// appendPlain appends a line of the history without its sequences. They are ours, so
// only CSI and OSC ended by ST occur.
func appendPlain(dst, line []byte) []byte {
	for i := 0; i < len(line); i++ {
		if line[i] != 0x1b {
			dst = append(dst, line[i])
			continue
		}
		if i++; line[i] == '[' {
			for i++; line[i] < 0x40; i++ {
			}
		} else {
			for i++; line[i] != 0x1b; i++ {
			}
			i++
		}
	}
	return dst
}
