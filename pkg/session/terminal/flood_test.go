package terminal

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// split writes byte by byte: by so little, each line is drawn.
func split(t *Terminal, data []byte) *Terminal {
	for i := range data {
		t.Write(data[i : i+1])
	}
	return t
}

// compareHistory compares what has scrolled away.
func compareHistory(t *testing.T, what string, want, got *Terminal) {
	t.Helper()
	a, b := &want.history, &got.history
	if a.lines != b.lines || !bytes.Equal(a.text[a.gone:], b.text[b.gone:]) {
		t.Errorf("%s: history\nwant %q\ngot  %q", what, a.text[a.gone:], b.text[b.gone:])
	}
}

// TestFlood holds lines that go into the history as they are against the same lines when each is drawn.
func TestFlood(t *testing.T) {
	others := append([]string{"\x1b[;2r\x1b[9H", "\x1b[;2r\x1b[9H", "\x1b[44m\r\n\x1b[m", "\x1b[?7l", "\x1b[?7h"}, pieces...)
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 3))
		o := Options{Cols: 1 + r.IntN(20), Rows: 1 + r.IntN(6), Scrollback: r.IntN(60) - 1}
		var input strings.Builder
		other, longest := 1+r.IntN(50), 1+r.IntN(4)
		for range r.IntN(200) {
			text := strings.Repeat("some plain text,  and more   ", 4)
			if input.WriteString(text[:r.IntN(longest*o.Cols+3)]); r.IntN(other) == 0 {
				input.WriteString(others[r.IntN(len(others))])
			}
			input.WriteString([]string{"\r\n", "\r\n", "\r\n", " \r\n", "\n"}[r.IntN(4+r.IntN(2))])
		}
		data := []byte(input.String())
		want, got := New(o), New(o)
		if r.IntN(10) == 0 { // as a row of blanks that came back from the history may be
			want.scr.rows[o.Rows-1].wrapped, got.scr.rows[o.Rows-1].wrapped = true, true
		}
		split(want, data)
		got.Write(data)
		compare(t, "at once", want, got)
		compareHistory(t, "at once", want, got)
		check(t, got)
		if t.Failed() {
			t.Fatalf("seed %d, %+v: %q", seed, o, data)
		}
	}
}

// A flood is not drawn: its lines are in the history, and no row ever had their cells. The same holds for wrapped lines.
func TestFloodIsNotDrawn(t *testing.T) {
	for _, cols := range []int{200, 20} {
		term := New(Options{Cols: cols, Rows: 3})
		line := strings.Repeat("x", 150) + "\r\n"
		term.Write([]byte("\r\n\r\n" + strings.Repeat(line, 10) + "a\r\nb\r\nc\r\nd"))
		for y, r := range term.scr.rows {
			if cap(r.cells) >= 20 {
				t.Errorf("%d columns: row %d had %d cells", cols, y, cap(r.cells))
			}
		}
		if want := "\n\n" + strings.Repeat(strings.TrimSpace(line)+"\n", 10) + "a\nb\nc\nd\n"; string(term.History(false)) != want {
			t.Errorf("%d columns: history %q, want %q", cols, term.History(false), want)
		}
	}
}

// TestPrintable tries each byte, and each pair of bytes, at each place of a word of eight and behind.
func TestPrintable(t *testing.T) {
	for c := range 1 << 16 {
		for at := range 18 {
			b := bytes.Repeat([]byte("~"), 20)
			b[at], b[at+1] = byte(c), byte(c>>8)
			want := slices.IndexFunc(b, func(c byte) bool { return c < ' ' || c > '~' })
			if want < 0 {
				want = len(b)
			}
			if got := printable(b); got != want {
				t.Fatalf("%q: %d, want %d", b, got, want)
			}
		}
	}
}
