package terminal

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// state is everything of a terminal that Restore brings over.
type state struct {
	Main, Alt              []string
	Alternate              bool
	Cursor, SavedM, SavedA cursor
	Top, Bottom            int
	Tabs                   []bool
	On                     modeSet
	Mouse                  []int
	Keys                   string
	Title, Icon            string
	Stack                  []titles
	Shape                  int
	Colors, Progress       string
}

func stateOf(t *Terminal) state {
	s := state{
		Main: lines(t, t.main), Alternate: t.alternate(),
		Cursor: t.cur, SavedM: t.main.saved,
		Top: t.top, Bottom: t.bottom, Tabs: t.tabs,
		On: t.modes.on &^ (1 << modeSync), Mouse: t.modes.mouse, Keys: fmt.Sprint(t.main.keys, t.alt.keys, t.modified),
		Title: t.desc.title, Icon: t.desc.icon, Stack: t.desc.stack, Shape: t.desc.shape,
		Colors: fmt.Sprint(t.desc.colors), Progress: t.desc.progress,
	}
	s.Cursor.pending = t.restorable(t.scr, t.cur)
	s.SavedM.pending = t.restorable(t.main, t.main.saved)
	if t.alternate() {
		s.Alt, s.SavedA = lines(t, t.alt), t.alt.saved
		s.SavedA.pending = t.restorable(t.alt, t.alt.saved)
	}
	if len(s.Mouse) == 0 {
		s.Mouse = nil
	}
	if len(s.Stack) == 0 {
		s.Stack = nil
	}
	return s
}

// restorable reports whether a cursor waits to wrap and another terminal's can be brought
// to that: not if the character in the last column would join the one before it, from
// which it was kept apart, since it would have to be written again.
func (t *Terminal) restorable(s *screen, c cursor) bool {
	r, x := s.rows[c.y], c.x
	x = r.start(x)
	before := r.start(x - 1)
	e := restorer{t: t}
	return c.pending && !(before >= 0 && e.joins(r.get(before), r.get(x)))
}

// lines writes down a screen's cells, with their styles where these change.
func lines(t *Terminal, s *screen) []string {
	var out []string
	for _, r := range s.rows {
		var b strings.Builder
		style := look{}
		for x := range t.cols {
			c := r.get(x)
			if st := t.look(c.style); st != style && c.text != tail {
				style = st
				fmt.Fprintf(&b, "{%v}", st)
			}
			if c.text == padding {
				c.text = ' '
			}
			b.WriteString(t.text(c))
		}
		if r.wrapped {
			b.WriteString(" ↩")
		}
		out = append(out, b.String())
	}
	return out
}

func compare(t *testing.T, what string, want, got *Terminal) {
	t.Helper()
	a, b := stateOf(want), stateOf(got)
	if reflect.DeepEqual(a, b) {
		return
	}
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range va.NumField() {
		if fa, fb := va.Field(i).Interface(), vb.Field(i).Interface(); !reflect.DeepEqual(fa, fb) {
			if la, ok := fa.([]string); ok {
				for y, l := range la {
					if y < len(fb.([]string)) && l != fb.([]string)[y] {
						t.Errorf("%s: %s row %d\nwant %q\ngot  %q", what, va.Type().Field(i).Name, y, l, fb.([]string)[y])
					}
				}
				continue
			}
			t.Errorf("%s: %s\nwant %+v\ngot  %+v", what, va.Type().Field(i).Name, fa, fb)
		}
	}
}

func restored(t *Terminal) *Terminal {
	other := New(Options{Cols: t.cols, Rows: t.rows})
	other.Write(t.Restore(t.cols, t.rows))
	return other
}

var pieces = []string{
	"a", "hello ", "\n", "\r\n", "\t", "\b", "日本", "é", "e\u0301", "👩\u200d👩\u200d👧", "☃\ufe0f", "🇩🇪", "👍🏽", "\x1b[31m", "\x1b[1;4;38;5;200m",
	"\x1b[48;2;1;2;3m", "\x1b[m", "\x1b[4:3m\x1b[58:2::9:8:7m", "\x1b]8;id=1;http://x/\x1b\\", "\x1b]8;;\x07", "\x1b[K", "\x1b[1K", "\x1b[2K",
	"\x1b[J", "\x1b[1J", "\x1b[2J", "\x1b[3J", "\x1b[5@", "\x1b[3P", "\x1b[2L", "\x1b[2M", "\x1b[4X", "\x1b[2S", "\x1b[2T", "\x1b[3;6r", "\x1b[r",
	"\x1b[?6h", "\x1b[?6l", "\x1b[?7l", "\x1b[?7h", "\x1b[4h", "\x1b[4l", "\x1b7", "\x1b8", "\x1b[s", "\x1b[u", "\x1b[?1049h", "\x1b[?1049l",
	"\x1b[?47h", "\x1b[?47l", "\x1b[?1048h", "\x1b[?1000h\x1b[?1006h", "\x1b[?1003h", "\x1b[?1003l", "\x1b[?2004h", "\x1b[?1h", "\x1b=", "\x1b>", "\x1b[?25l",
	"\x1b[?25h", "\x1b[>1u", "\x1b[>5u", "\x1b[<u", "\x1b[=3;2u", "\x1b[>4;2m", "\x1b(0", "\x1b(B", "\x1b)0", "\x0e", "\x0f", "\x1bn", "\x1bN", "\x1b[5 q",
	"\x1bH", "\x1b[3g", "\x1b[g", "\x1b]0;title\x07", "\x1b]1;icon\x1b\\", "\x1b[22;0t", "\x1b[23;0t", "\x1b]4;7;rgb:1/2/3\x07", "\x1b]11;#123456\x07",
	"\x1b]104\x07", "\x1b]111\x07", "\x1b]7;file://h/tmp\x07", "\x1b]9;4;1;20\x07", "\x1b#8", "\x1bM", "\x1bD", "\x1bE", "\x1b[!p", "\x1bc", "\x1b[7b", "xyz\x1b[7b",
	"\x1b[A", "\x1b[3B", "\x1b[4C", "\x1b[9D", "\x1b[5G", "\x1b[4;7H", "\x1b[99;99H", "\x1b[I", "\x1b[Z", "\x1b[?2026h", "\x1b[?2026l", "\x1b[?5h", "\x1b[20h",
	"\x1b[?s", "\x1b[?1049s", "0123456789", "\x1b[7m \x1b[27m",
}

// TestRestore holds a terminal that was fed what Restore says against the first one.
func TestRestore(t *testing.T) {
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 1))
		term := New(Options{Cols: 1 + r.IntN(20), Rows: 1 + r.IntN(8)})
		var input strings.Builder
		for range 1 + r.IntN(60) {
			p := pieces[r.IntN(len(pieces))]
			if r.IntN(30) == 0 {
				cols, rows := 1+r.IntN(20), 1+r.IntN(8)
				fmt.Fprintf(&input, "<%dx%d>", cols, rows)
				term.Resize(cols, rows)
			}
			input.WriteString(p)
			term.Write([]byte(p))
		}
		compare(t, "restored", term, restored(term))
		if t.Failed() {
			t.Fatalf("seed %d: %q", seed, input.String())
		}
	}
}

// Reset leaves the cursor on the last row that is used, also on a terminal that showed
// something before it got this one's bytes.
func TestResetBelowOthers(t *testing.T) {
	for name, bytes := range map[string]string{
		"a shell":               "one\r\ntwo\r\n> ",
		"the alternate screen":  "one\r\ntwo\r\n> \x1b[?1049h\x1b[9;9Hx",
		"content below":         "one\r\ntwo\r\n> \x1b[2A",
		"a region, and colours": "one\r\ntwo\r\n\x1b7\x1b[2;9r\x1b8\x1b[31m> ",
	} {
		outer, inner := New(Options{Cols: 80, Rows: 24}), New(Options{Cols: 80, Rows: 24})
		outer.Write([]byte("$ docker run\r\nstarting\r\nstarted\r\n"))
		outer.Write([]byte(bytes))
		inner.Write([]byte(bytes))
		outer.Write(inner.Reset())
		if outer.cur.y != 5 || outer.cur.x != 0 || outer.cur.pen != (look{}) || outer.top != 0 || outer.bottom != 23 || outer.alternate() {
			t.Errorf("%s: the cursor is at %d,%d, want 0,5; region %d-%d", name, outer.cur.x, outer.cur.y, outer.top, outer.bottom)
		}
	}
}
