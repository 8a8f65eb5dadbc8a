package film

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/session/terminal"
)

// cast is a record with one event for each of lines, a second apart.
func cast(cols, rows int, lines ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{\"version\": 2, \"width\": %d, \"height\": %d, \"timestamp\": 1795420800, \"title\": \"agent\"}\n", cols, rows)
	for i, line := range lines {
		text, _ := json.Marshal(line)
		fmt.Fprintf(&b, "[%d.5, \"o\", %s]\n", i, text)
	}
	return b.String()
}

func read(t *testing.T, s string) *Film {
	t.Helper()
	f, err := Read(strings.NewReader(s))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func lines(rows [][]Run) (out []string) {
	for _, row := range rows {
		var b strings.Builder
		for _, run := range row {
			b.WriteString(run.Text)
		}
		out = append(out, b.String())
	}
	return out
}

// TestRead: each picture has what has changed, and the last screen is the terminal's.
func TestRead(t *testing.T) {
	f := read(t, cast(20, 3, "one\r\n", "\x1b[1;31mtwo\x1b[m", "\x1b[H\x1b[2K表z"))
	if f.Cols != 20 || f.Rows != 3 || f.Seconds != 2.5 || f.Cut || f.Begun.IsZero() || len(f.Pictures) != 3 {
		t.Fatalf("%+v", f)
	}
	if got := lines(f.Screen(1)); !reflect.DeepEqual(got, []string{"one", "two", ""}) {
		t.Errorf("%q", got)
	}
	if got := lines(f.Screen(2)); !reflect.DeepEqual(got, []string{"表z", "two", ""}) {
		t.Errorf("%q", got)
	}
	if len(f.Pictures[2].Rows) != 1 || !f.Pictures[2].Rows[0][0].Wide {
		t.Errorf("%+v", f.Pictures[2])
	}
	if s := f.Looks[f.Pictures[1].Rows[1][0].Look]; !s.Bold || s.FG != (terminal.Color{Set: true, Value: 1}) {
		t.Errorf("%+v", s)
	}
}

// TestResize: a screen that grows and shrinks has the rows of its largest size, and none of what is gone.
func TestResize(t *testing.T) {
	s := cast(10, 4, "a\r\nb\r\nc\r\nd") + "[2, \"r\", \"5x2\"]\n[3, \"o\", \"e\"]\n[4, \"r\", \"9000x2\"]\n"
	f := read(t, s)
	if got := lines(f.Screen(len(f.Pictures))); f.Rows != 4 || !reflect.DeepEqual(got, []string{"c", "de", "", ""}) {
		t.Errorf("%d rows, %q", f.Rows, got)
	}
}

// TestLong: a record of any length makes a bounded film, whose end is the record's.
func TestLong(t *testing.T) {
	var all []string
	for i := range 6 * maxPictures {
		all = append(all, fmt.Sprintf("\x1b[H\x1b[3%dm%d\x1b[38;2;1;2;%dmx", i%8, i, i%256))
	}
	f := read(t, cast(80, 24, all...))
	if n := len(f.Pictures); n > maxPictures || n < maxPictures/3 || len(f.Looks) > maxLooks {
		t.Errorf("%d pictures, %d looks", n, len(f.Looks))
	}
	if got := lines(f.Screen(len(f.Pictures)))[0]; got != fmt.Sprintf("%dx", 6*maxPictures-1) {
		t.Errorf("it ends with %q", got)
	}
}

// TestCut: what follows the end of a record is not guessed at, and what is no record is none.
func TestCut(t *testing.T) {
	for _, s := range []string{"x\n", "[1]\n", "[\"a\", \"o\", \"b\"]\n", "[-1, \"o\", \"b\"]\n", strings.Repeat("x", maxLine+1)} {
		if f := read(t, cast(10, 2, "a")+s+"[9, \"o\", \"b\"]\n"); !f.Cut || f.Seconds != 0.5 {
			t.Errorf("%.20q: %+v", s, f)
		}
	}
	if f := read(t, cast(10, 2, "a")+`[9, "o", "half`); f.Cut || len(f.Pictures) != 1 {
		t.Errorf("%+v", f)
	}
	for _, s := range []string{"", "x\n", "{}\n", cast(0, 5), cast(401, 5), `{"version":1,"width":10,"height":10}` + "\n"} {
		if f, err := Read(strings.NewReader(s)); err == nil {
			t.Errorf("%q is %+v", s, f)
		}
	}
}

// TestHostile: what turns text around, or has no form of its own, is in no picture.
func TestHostile(t *testing.T) {
	data, err := json.Marshal(read(t, cast(40, 2, "a\u202eb\u2066c\u009bd\x7fe \x1b]0;x\x07")))
	if err != nil || bytes.ContainsAny(data, "\u202e\u2066\u009b\x7f") {
		t.Errorf("%s, %v", data, err)
	}
}

// FuzzRead: nothing that stands in a record makes a film that is out of its bounds, or is not the same twice.
func FuzzRead(f *testing.F) {
	f.Add([]byte(cast(20, 3, "one\r\n", "\x1b[1;31mtwo\x1b[m", "表z")))
	f.Add([]byte(cast(10, 4, "a\r\nb") + "[2, \"r\", \"5x2\"]\n[3, \"o\", \"\x1b[?1049h\"]\n"))
	if data, err := os.ReadFile("testdata/session.cast"); err == nil {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		film, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		if len(film.Pictures) > maxPictures || film.Cols > maxCols || film.Rows > maxRows || len(film.Looks) > maxLooks {
			t.Errorf("%d pictures of %d×%d, %d looks", len(film.Pictures), film.Cols, film.Rows, len(film.Looks))
		}
		for _, row := range film.Screen(len(film.Pictures)) {
			for _, run := range row {
				if run.Look >= len(film.Looks) {
					t.Errorf("no look %d", run.Look)
				}
			}
		}
		if again, err := Read(bytes.NewReader(data)); err != nil || !reflect.DeepEqual(film, again) {
			t.Errorf("it is another film when it is read again: %v", err)
		}
	})
}
