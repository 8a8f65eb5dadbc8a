package terminal

import (
	"bytes"
	"strings"
	"testing"
)

// FuzzTerminal feeds hostile bytes, cut and resized anywhere.
func FuzzTerminal(f *testing.F) {
	for _, r := range recordings(f) {
		f.Add(r.data[:1024], uint16(r.cols), uint16(r.rows), uint16(100), uint16(60))
	}
	for _, p := range pieces {
		f.Add([]byte("ab"+p+"cd"+p+"\r\n日本"+p), uint16(7), uint16(4), uint16(5), uint16(9))
	}
	f.Add([]byte(strings.Repeat("a line \r\n", 20)+"\x1b[31m"+strings.Repeat("of colour\r\n", 20)), uint16(9), uint16(4), uint16(5), uint16(9))
	f.Fuzz(func(t *testing.T, data []byte, cols, rows, newCols, newRows uint16) {
		cols, rows, newCols, newRows = cols%300, rows%100, newCols%300, newRows%100
		term := New(Options{Cols: int(cols), Rows: int(rows), Scrollback: 500})
		tell(term, "ffffff", "000000")
		half := len(data) / 2
		term.Write(data[:half])
		term.Resize(int(newCols), int(newRows))
		check(t, term)
		term.Write(data[half:])
		check(t, term)

		whole := New(Options{Cols: int(cols), Rows: int(rows), Scrollback: 500})
		whole.Write(data)
		single := split(New(Options{Cols: int(cols), Rows: int(rows), Scrollback: 500}), data)
		compare(t, "byte by byte", whole, single)
		compareHistory(t, "byte by byte", whole, single)

		// No longer than anyone's screen can need, and a fixpoint.
		compare(t, "restored", term, restored(term))
		for _, styles := range []bool{false, true} {
			term.History(styles)
		}
		if n := len(term.Replies()); n > maxReplies {
			t.Errorf("%d bytes of replies", n)
		}
		other := New(Options{Cols: term.cols, Rows: term.rows})
		other.Write(data)
		other.Write(term.Reset())
		if other.modes.on != defaultModes || len(other.modes.mouse) > 0 || other.alternate() || other.cur.pen != (look{}) {
			t.Errorf("after Reset: modes %b, mouse %d, alternate %v, pen %v", other.modes.on, other.modes.mouse, other.alternate(), other.cur.pen)
		}
	})
}

// check holds what must be true of any terminal.
func check(t *testing.T, term *Terminal) {
	t.Helper()
	c := term.cur
	if c.x < 0 || c.x >= term.cols || c.y < 0 || c.y >= term.rows || term.top > term.bottom || term.bottom >= term.rows || len(term.tabs) != term.cols {
		t.Fatalf("size %dx%d, cursor %d,%d, region %d-%d, %d tabs", term.cols, term.rows, c.x, c.y, term.top, term.bottom, len(term.tabs))
	}
	for _, s := range []*screen{term.main, term.alt} {
		if len(s.rows) != term.rows {
			t.Fatalf("%d rows of %d", len(s.rows), term.rows)
		}
		for y, r := range s.rows {
			if len(r.cells) > term.cols {
				t.Fatalf("row %d has %d cells of %d", y, len(r.cells), term.cols)
			}
			for x, c := range r.cells {
				if c.text == tail && (x == 0 || r.cells[x-1].text == tail || r.cells[x-1].text == ' ') {
					t.Fatalf("row %d: half a character at %d", y, x)
				}
			}
		}
	}
	h := &term.history
	lines := bytes.Count(h.text[h.gone:], []byte("\n"))
	if lines != h.lines || h.lines > h.limit || len(h.text) > 2*historyBytes {
		t.Fatalf("%d lines counted as %d, %d bytes", lines, h.lines, len(h.text))
	}
}
