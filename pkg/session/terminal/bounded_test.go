package terminal

import (
	"fmt"
	"strings"
	"testing"
)

// TestRestoreIsBounded fills the largest screens with what costs the most per cell: what
// brings another terminal there stays below what may wait for a client.
func TestRestoreIsBounded(t *testing.T) {
	const most = 8 << 20
	mark := "e" + strings.Repeat("\u0301", 31)
	for name, cell := range map[string]func(i int) string{
		"links": func(i int) string { return fmt.Sprintf("\x1b]8;;http://%s%d/\x07x", strings.Repeat("a", 2000), i%2) },
		"styles": func(i int) string {
			return fmt.Sprintf("\x1b[0;1;3;4:3;38;2;1;2;%d;48;2;255;255;255;58:2::255:255:255m\U0001f600", i%250)
		},
		"marks":    func(int) string { return mark },
		"joiners":  func(int) string { return "\U0001f1e6" },
		"together": func(i int) string { return fmt.Sprintf("\x1b]8;;http://%d/\x07\x1b[38;5;%dm%s", i%99, i%250, mark) },
	} {
		term := New(Options{Cols: maxCols, Rows: maxRows, Scrollback: -1})
		for screen := range 2 {
			for i := range maxCols * maxRows / 8 { // the rest by copies, which cost the test nothing
				fmt.Fprint(term, cell(i))
			}
			rows := term.scr.rows
			for y := maxRows / 8; y < maxRows; y++ {
				rows[y].cells = append(rows[y].cells[:0], rows[y%(maxRows/8)].cells...)
			}
			if n := len(term.Restore(maxCols, maxRows)); n > most {
				t.Errorf("%s: %d bytes for %d screens", name, n, screen+1)
			}
			fmt.Fprint(term, "\x1b[?1049h\x1b[H")
		}
	}
}
