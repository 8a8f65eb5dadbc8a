package terminal

// Reset returns what brings a client's terminal back to where a shell expects it, with
// nothing that the programs switched on left on, and the cursor on the last row that
// the main screen uses. It is right for a terminal that got this one's bytes, wherever
// they ended.
func (t *Terminal) Reset() []byte {
	var e restorer
	e.put("\x1b\\\x1b[?2026l")
	e.put("\x1b7\x1b[?1049l") // 1049 restores the cursor, also where nothing is to be left
	c := t.cur
	if t.Alternate() {
		c = t.main.saved
	}
	// Both take the cursor home. The terminal may have had something above what the model
	// knows, so that only the cursor says where it is.
	const home = "\x1b[?6l\x1b[r"
	if c.origin {
		e.put(home)
	} else {
		e.put("\x1b7" + home + "\x1b8")
	}
	e.put("\x1b[?9;1000;1001;1002;1003;1005;1006;1015;1016l\x1b[?1004l\x1b[?1007l\x1b[?1042l\x1b[?2004l\x1b[?2027l\x1b[?2031l\x1b[?2048l")
	e.put("\x1b[?1l\x1b>\x1b[?5l\x1b[?7h\x1b[?8h\x1b[?12l\x1b[?66l\x1b[?67l\x1b[4l\x1b[20l\x1b[?25h\x1b[0 q")
	e.put("\x1b[<%du\x1b[=0;1u", kittyDepth)
	for resource, value := range t.keys.modified {
		if value > 0 && resource != 4 {
			e.put("\x1b[>%dm", resource)
		}
	}
	e.put("\x1b[>4;0m\x1b[>4m\x1b[m\x1b]8;;\x1b\\\x1b(B\x1b)B\x1b*B\x1b+B\x0f")
	e.buf = append(e.buf, t.Traces().Undo()...)
	used := c.y
	for y, r := range t.main.rows {
		if !r.empty() {
			used = max(used, y)
		}
	}
	switch {
	case c.origin: // a cursor that is saved with it can't be brought back without
		e.put("\x1b[%dH", used+1)
	case used > c.y:
		e.put("\r\x1b[%dB", used-c.y)
	default:
		e.put("\r")
	}
	return e.buf
}

// Traces are what programs have left on a terminal that no later program takes back by
// itself: colours, progress, titles put aside. Two can be compared.
type Traces struct {
	touched touched
	titles  int
}

// Traces returns what there is to take back by now.
func (t *Terminal) Traces() Traces {
	return Traces{t.desc.touched, len(t.desc.stack)}
}

// Undo returns what takes them back.
func (t Traces) Undo() []byte {
	var e restorer
	for range t.titles {
		e.put("\x1b[23;0t")
	}
	if t.touched.palette {
		e.put("\x1b]104\x1b\\")
	}
	for i, touched := range t.touched.dynamic {
		if touched {
			e.put("\x1b]%d\x1b\\", 110+i)
		}
	}
	if t.touched.progress {
		e.put("\x1b]9;4;0\x1b\\")
	}
	return e.buf
}
