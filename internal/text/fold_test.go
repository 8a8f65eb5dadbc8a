package text

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

func TestFold(t *testing.T) {
	for _, tc := range []struct {
		line, hang, want string
		width            int
	}{
		{"short", "  ", "short", 10},
		{"one two three", "  ", "one two\n  three", 8},
		{"exactly ten", "", "exactly\nten", 10},
		{"exact  ten", "", "exact  ten", 10},
		{"  a blank ahead", "  ", "  a blank\n  ahead", 10},
		{"averyverylongword", "  ", "averyverylongword", 8},
		{"averyverylongword and more", "  ", "averyverylongword\n  and\n  more", 8},
		{"\x1b[31mdeny\x1b[0m evil", "  ", "\x1b[31mdeny\x1b[0m evil", 9},
		{"a.example      # refused often", "  # ", "a.example\n  # refused\n  # often", 14},
		{"allowed 例え.jp and more", "  ", "allowed\n  例え.jp\n  and more", 11},           // two columns each
		{"e\u0301e\u0301e\u0301 two words", "", "e\u0301e\u0301e\u0301 two\nwords", 7}, // what combines takes none
		{"ends in blanks      ", "  ", "ends in\n  blanks      ", 10},
	} {
		if got := Fold(tc.line, tc.width, tc.hang); got != tc.want {
			t.Errorf("%q in %d columns is\n%q, want\n%q", tc.line, tc.width, got, tc.want)
		}
	}
}

// TestFoldedWriter: a line may come in pieces, and nothing of it is lost.
func TestFoldedWriter(t *testing.T) {
	var b strings.Builder
	f := &folder{w: &b, width: 12, hang: "  "}
	for _, piece := range []string{"some wo", "rds in a ", "line\nand", " another\n"} {
		if n, err := f.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got, want := b.String(), "some words\n  in a line\nand another\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestFoldedTerminal: a terminal that does not know its width yet is as wide as most.
func TestFoldedTerminal(t *testing.T) {
	ptmx, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer ptmx.Close()
	defer tty.Close()
	for size, want := range map[uint16]int{0: 80, 60: 60, 200: 200} {
		if err := pty.Setsize(tty, &pty.Winsize{Cols: size}); err != nil {
			t.Fatal(err)
		}
		if f, ok := Folded(tty, "  ").(*folder); !ok || f.width != want {
			t.Errorf("%d columns: %+v", size, f)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if Folded(w, "") != w {
		t.Error("a pipe is folded")
	}
}

// TestMoment: one format of time, with the date where it is needed.
func TestMoment(t *testing.T) {
	now := time.Date(2026, 3, 2, 15, 0, 0, 0, time.Local)
	for before, want := range map[time.Duration]string{
		time.Hour: "14:00:00", 16 * time.Hour: "Mar  1 23:00:00", 70 * 24 * time.Hour: "2025-12-22 15:00:00",
	} {
		if got := Moment(now.Add(-before), now); got != want {
			t.Errorf("%v before: %q, want %q", before, got, want)
		}
	}
	if got := Moment(now, now.AddDate(1, 0, 0)); got != "2026-03-02 15:00:00" {
		t.Error(got)
	}
}
