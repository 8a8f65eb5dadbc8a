package text

import (
	"io"
	"os"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"
	"golang.org/x/sys/unix"
)

// folder breaks lines between words where a terminal would break them within one.
// Every further part of a line begins with hang.
type folder struct {
	w     io.Writer
	width int
	hang  string
	rest  []byte // of a line that has no end yet
}

// usualWidth is what a terminal has that does not say how wide it is.
const usualWidth = 80

// Folded is where a command writes for a person: the terminal's width is kept, and a
// file or a pipe gets the lines as they are, for programs that read line by line.
func Folded(w io.Writer, hang string) io.Writer {
	f, ok := w.(*os.File)
	if !ok {
		return w
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return w
	}
	width := int(size.Col)
	if width == 0 { // it does not know yet: "docker exec -t" says it when the command runs already
		width = usualWidth
	}
	return &folder{w: w, width: max(width, 2*len(hang)), hang: hang}
}

func (f *folder) Write(p []byte) (int, error) {
	f.rest = append(f.rest, p...)
	var out strings.Builder
	for {
		line, rest, whole := strings.Cut(string(f.rest), "\n")
		if !whole {
			break
		}
		f.rest = []byte(rest)
		out.WriteString(Fold(line, f.width, f.hang) + "\n")
	}
	if _, err := io.WriteString(f.w, out.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Fold breaks a line at blanks so that no part is wider than width. A word that is
// wider stays whole.
func Fold(line string, width int, hang string) string {
	var out strings.Builder
	begun := 0 // where a part may be broken first
	for Columns(line) > width {
		at := blankBefore(line, begun, width)
		if at < 0 {
			break
		}
		out.WriteString(strings.TrimRight(line[:at], " ") + "\n")
		rest := strings.TrimLeft(line[at:], " ")
		if strings.HasSuffix(hang, "# ") {
			rest = strings.TrimPrefix(rest, "# ") // a comment goes on as one
		}
		line, begun = hang+rest, len(hang)
	}
	return out.String() + line
}

// blankBefore is the last blank, behind a word, by which no more than width columns
// have passed; if there is none, the first one.
func blankBefore(line string, begun, width int) int {
	begun += len(line[begun:]) - len(strings.TrimLeft(line[begun:], " "))
	last := -1
	for i := begun; i < len(line); i++ {
		if line[i] != ' ' || strings.TrimLeft(line[i:], " ") == "" {
			continue
		}
		if Columns(line[:i]) > width && last >= 0 {
			break
		}
		last = i
	}
	return last
}

// Columns is how many a text takes, colours aside. A character may take two, or none.
func Columns(s string) int {
	n := 0
	for s != "" {
		if rest, ok := strings.CutPrefix(s, "\x1b["); ok {
			if end := strings.IndexByte(rest, 'm'); end >= 0 {
				s = rest[end+1:]
				continue
			}
		}
		end := strings.IndexByte(s[1:], '\x1b') + 1
		if end == 0 {
			end = len(s)
		}
		n, s = n+displaywidth.String(s[:end]), s[end:]
	}
	return n
}

// Moment is a time as every command shows it to people: the hour of today, and the
// date where the day, or the year, is another.
func Moment(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	switch {
	case t.Year() != now.Year():
		return t.Format(time.DateTime)
	case t.YearDay() != now.YearDay():
		return t.Format("Jan _2 15:04:05")
	}
	return t.Format(time.TimeOnly)
}
