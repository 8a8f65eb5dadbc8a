package terminal

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestResize says what a screen of 8 columns and 4 rows shows at another size, and
// where its cursor is.
func TestResize(t *testing.T) {
	for _, test := range []struct {
		name, in   string
		cols, rows int
		want       string
		x, y       int
	}{
		{"narrower", "abcdef", 4, 4, "abcd|ef", 2, 1},
		{"wider", "abcdefghij", 16, 4, "abcdefghij", 10, 0},
		{"cursor in the text", "abcdef\x1b[3D", 2, 4, "ab|cd|ef", 1, 1},
		{"cursor behind the text", "ab\x1b[8G", 4, 4, "ab", 3, 0},
		{"behind a full row", "abcd\x1b[?7l", 4, 4, "abcd", 3, 0},
		{"lines stay apart", "ab\r\ncd", 2, 4, "ab|cd", 1, 1},
		{"wide ones stay whole", "日本語", 5, 4, "日本|語", 2, 1},
		{"and come together", "abcdefg日", 20, 4, "abcdefg日", 9, 0},
		{"too narrow for wide ones", "日", 1, 4, "", 0, 0},
		{"lower, with room below", "a\r\nb", 8, 2, "a|b", 1, 1},
		{"lower", "1\r\n2\r\n3\r\n4", 8, 2, "3|4", 1, 1},
		{"higher", "1\r\n2\r\n3\r\n4\r\n5\r\n6", 8, 6, "1|2|3|4|5|6", 1, 5},
		{"higher, nothing to come back", "1", 8, 6, "1", 1, 0},
		{"narrower, into the history", "abcdefgh\r\n2\r\n3\r\n4", 4, 4, "efgh|2|3|4", 1, 3},
		{"the region ends", "\x1b[2;3r", 8, 6, "", 0, 0},
		{"alternate screen is cut", "\x1b[?1049h\x1b[Habcdefgh\r\n2\r\n3\r\n4", 4, 2, "3|4", 1, 1},
		{"and widened", "\x1b[?1049h\x1b[Habcdefghij", 20, 5, "abcdefgh|ij", 2, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			term := New(Options{Cols: 8, Rows: 4})
			term.Write([]byte(test.in))
			term.Resize(test.cols, test.rows)
			check(t, term)
			if got := show(term); got != test.want {
				t.Errorf("shows %q, not %q", got, test.want)
			}
			if x, y := term.Cursor(); x != test.x || y != test.y {
				t.Errorf("cursor at %d,%d, not %d,%d", x, y, test.x, test.y)
			}
			compare(t, "restored", term, restored(term))
		})
	}
}

// TestResizeLosesNothing resizes to and fro and holds the text against what was written.
func TestResizeLosesNothing(t *testing.T) {
	term := New(Options{Cols: 40, Rows: 10})
	var want strings.Builder
	for i := range 100 {
		line := fmt.Sprintf("%d %s日本語\x1b[31m%s\x1b[m", i, strings.Repeat("x", i), strings.Repeat("é", i))
		fmt.Fprintf(&want, "%s\n", pass(Filter{Plain: true}, line))
		term.Write([]byte(line + "\r\n"))
	}
	for _, size := range [][2]int{{20, 10}, {33, 3}, {7, 50}, {200, 50}, {2, 1}, {80, 24}, {40, 10}} {
		term.Resize(size[0], size[1])
		check(t, term)
		if got := term.History(false); strings.TrimRight(string(got), "\n")+"\n" != want.String() {
			t.Fatalf("at %v: %q", size, got)
		}
	}
}

// TestReset brings terminals back from everything that is switched on.
func TestReset(t *testing.T) {
	for _, in := range append(pieces, "\x1b]0;never ended", "\x1bPq", "\x1b[31", "\xe2\x82", "\x1b[?1049h\x1b[?6h\x1b[2;3r\x1b7", strings.Join(pieces, "")) {
		term := New(Options{Cols: 20, Rows: 6})
		term.Write([]byte(in))
		term.Write(term.Reset())
		want := New(Options{Cols: 20, Rows: 6})
		got := stateOf(term)
		s := stateOf(want)
		s.Cursor.x, s.Cursor.y = term.cur.x, term.cur.y
		s.Main, s.SavedM = got.Main, got.SavedM // content, and what no shell relies on
		s.Title, s.Icon = got.Title, got.Icon
		if a, b := fmt.Sprintf("%+v", s), fmt.Sprintf("%+v", got); a != b {
			t.Errorf("after %q and Reset:\n%s, not\n%s", in, b, a)
		}
	}
}

// TestRestoreElsewhere restores to other sizes: the part with the cursor is shown.
func TestRestoreElsewhere(t *testing.T) {
	term := New(Options{Cols: 8, Rows: 4})
	term.Write([]byte("abcdef日\r\n2\r\n3\r\n4"))
	for _, test := range []struct {
		cols, rows int
		want       string
		x, y       int
	}{
		{7, 4, "abcdef|2|3|4", 1, 3},
		{8, 2, "3|4", 1, 1},
		{1, 1, "4", 0, 0},
		{20, 9, "abcdef日|2|3|4", 1, 3},
	} {
		other := New(Options{Cols: test.cols, Rows: test.rows})
		other.Write(term.Restore(test.cols, test.rows))
		x, y := other.Cursor()
		if got := show(other); got != test.want || x != test.x || y != test.y {
			t.Errorf("at %dx%d: %q with the cursor at %d,%d, not %q with it at %d,%d", test.cols, test.rows, got, x, y, test.want, test.x, test.y)
		}
	}
}

// TestBounds feeds what is made to be kept, and holds how much is.
func TestBounds(t *testing.T) {
	long := strings.Repeat("a", 2000)
	for _, test := range []struct {
		name string
		make func(i int) string
		max  int64
	}{
		{"text", func(i int) string { return fmt.Sprintf("%d %s\r\n", i, long[:60+i%100]) }, 6 << 20},
		{"colours in each cell", func(i int) string {
			return fmt.Sprintf("\x1b[38;2;%d;%d;%dm\x1b[48;2;%d;1;2mx", i%256, i/256%256, i/65536, i%251)
		}, 24 << 20},
		{"links in each cell", func(i int) string { return fmt.Sprintf("\x1b]8;;http://%d/%s\x07x", i, long) }, 32 << 20},
		{"marks on each cell", func(i int) string { return string(rune('a'+i%26)) + strings.Repeat(string(rune(0x300+i/26%90)), 60) }, 24 << 20},
		{"strings that do not end", func(int) string { return "\x1b]2;" + long + long + long + long + long }, 1 << 20},
		{"titles", func(i int) string { return "\x1b]2;" + long + "\x07\x1b[22t" }, 1 << 20},
		{"keyboards", func(i int) string { return "\x1b[>31u" }, 1 << 20},
		{"saved modes", func(i int) string { return fmt.Sprintf("\x1b[?%ds", i) }, 1 << 20},
		{"colours of the palette", func(i int) string { return fmt.Sprintf("\x1b]4;%d;red\x07", i) }, 1 << 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := heap()
			term := New(Options{Cols: 200, Rows: 50})
			for i := range 30000 {
				term.Write([]byte(test.make(i)))
			}
			used := heap() - before
			t.Logf("%.1f MiB", float64(used)/(1<<20))
			if used > test.max {
				t.Errorf("holds %d bytes, more than %d", used, test.max)
			}
			check(t, term)
			runtime.KeepAlive(term)
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
