package terminal

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestSpans: parts that look alike are one, wide characters are their own, and blanks at the end are none.
func TestSpans(t *testing.T) {
	term := New(Options{Cols: 20, Rows: 2})
	_, _ = term.Write([]byte("ab\x1b[1;38;5;200mc\x1b[0;48;2;1;2;3md\x1b[m表\x1b[8mx\x1b[m  "))
	want := []Span{
		{Text: "ab"}, {Text: "c", Style: Style{Bold: true, FG: Color{Set: true, Value: 200}}},
		{Text: "d", Style: Style{BG: Color{Set: true, RGB: true, Value: 0x010203}}}, {Text: "表", Wide: true},
	}
	if got := term.Spans(0); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, y := range []int{-1, 1, 2} {
		if got := term.Spans(y); len(got) != 0 {
			t.Errorf("row %d has %+v", y, got)
		}
	}
}

// TestSpansAreTheText: of what real programs wrote, the spans of each row are its text.
func TestSpansAreTheText(t *testing.T) {
	files, err := filepath.Glob("testdata/*-*x*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		term := New(Options{Cols: 100, Rows: 30})
		_, _ = term.Write(data)
		for y, row := range term.Text() {
			var b strings.Builder
			for _, s := range term.Spans(y) {
				b.WriteString(s.Text)
			}
			if got := strings.TrimRight(b.String(), " "); got != row {
				t.Errorf("%s, row %d: %q, want %q", file, y, got, row)
			}
		}
	}
}
