package text

import (
	"strings"
	"testing"
)

func TestFit(t *testing.T) {
	for _, c := range []struct {
		text    string
		columns int
		want    string
	}{
		{"abc", 5, "abc  "}, {"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"", 2, "  "}, {"abc", 0, ""}, {"日本語", 5, "日本…"}, {"日本語", 4, "日… "},
		{"日", 1, "…"}, {"ééé", 2, "é…"},
	} {
		if got := Fit(c.text, c.columns); got != c.want || Columns(got) != max(0, c.columns) {
			t.Errorf("%q in %d: %q, want %q", c.text, c.columns, got, c.want)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add("plain text", 4)
	f.Add("日本語 e\u0301 👩‍👩‍👧", 3)
	f.Fuzz(func(t *testing.T, s string, columns int) {
		s, columns = Clean(s), max(0, columns&0xff)
		if got := Fit(s, columns); Columns(got) != columns {
			t.Fatalf("%q in %d columns: %q has %d", s, columns, got, Columns(got))
		}
		var all strings.Builder
		for rest := s; rest != ""; {
			var head string
			before := len(rest)
			if head, rest = Cut(rest, columns); len(rest) >= before {
				t.Fatalf("%q does not become shorter", rest)
			}
			all.WriteString(head)
		}
		if columns >= 2 && all.String() != s && Columns(s) == len([]rune(s)) {
			t.Fatalf("%q became %q", s, all.String())
		}
	})
}
