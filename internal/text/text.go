// Package text has words, times and columns for people, wherever they are said.
package text

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/clipperhouse/displaywidth"
	"golang.org/x/sys/unix"
)

// Clean is s as a terminal may have it: the agent chooses names, and a control
// character or a mark that reorders text could make a line look like another.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// Counted is how many there are of what one and more name: "1 name", "2 names".
func Counted[N int | uint64](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// Times is how often something was: "once", "2 times".
func Times[N int | uint64](n N) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// Ago is how long something is past.
func Ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return time.Since(t).Round(time.Second).String() + " ago"
}

// FirstFault is the first error of a policy, which stands below a headline.
func FirstFault(s string) string {
	_, errs, ok := strings.Cut(s, "\n")
	if !ok {
		return s
	}
	first, rest, more := strings.Cut(errs, "\n")
	if more {
		first += fmt.Sprintf(" (and %d more)", 1+strings.Count(rest, "\n"))
	}
	return first
}

// InOneLine is an error of several lines as the log takes it.
func InOneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// CauseOf is what an error of a file says beside the file's path, for who names it.
func CauseOf(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// FirstLine is what stands before the first break.
func FirstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// Shortly is a time as people write it: 10m, 1h30m.
func Shortly(d time.Duration) string { return Trimmed(d.Round(time.Second)) }

// Roughly is a time in which nobody counts the seconds if it is longer than an hour.
func Roughly(d time.Duration) string {
	if d > time.Hour {
		d = d.Round(time.Minute)
	}
	return Shortly(d)
}

// Trimmed is a time without the zeros at its end.
func Trimmed(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// ParseTime reads a time that people write: 90s, 1h30m, and 3d. A day has 24 hours.
func ParseTime(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	d, err := time.ParseDuration(s)
	if err == nil && d < 0 {
		err = errors.New("it is negative")
	}
	return d, err
}

// Moment is a time as commands show it: the hour of today, with the date where the day or the year is another.
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

// Screen writes lines until one can't be written.
type Screen struct {
	W   io.Writer
	Err error
}

// Line writes one line.
func (s *Screen) Line(format string, args ...any) {
	if s.Err == nil {
		_, s.Err = fmt.Fprintf(s.W, format+"\n", args...)
	}
}

// Row writes a line that begins with a name, in a column of its own.
func (s *Screen) Row(name, format string, args ...any) {
	s.Line("  %-12s "+format, append([]any{name}, args...)...)
}

// JSON writes v for programs.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// IsTerminal says whether a file is one.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// folder breaks lines between words. Every further part of a line begins with hang.
type folder struct {
	w     io.Writer
	width int
	hang  string
	rest  []byte // of a line that has no end yet
}

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
	width := cmp.Or(int(size.Col), 80) // it may not know yet: "docker exec -t" says it when the command runs already
	return &folder{w: w, width: max(width, 2*len(hang)), hang: hang}
}

func (f *folder) Write(p []byte) (int, error) {
	f.rest = append(f.rest, p...)
	end := bytes.LastIndexByte(f.rest, '\n') + 1
	var out strings.Builder
	for line := range strings.Lines(string(f.rest[:end])) {
		out.WriteString(Fold(strings.TrimSuffix(line, "\n"), f.width, f.hang) + "\n")
	}
	f.rest = f.rest[end:]
	if _, err := io.WriteString(f.w, out.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// wordOf is a word with the blanks before it; the last has those behind it as well.
var wordOf = regexp.MustCompile(` *[^ ]+(?: +$)?|^ +$`)

// Fold breaks a line at blanks so that no part is wider than width. A wider word stays whole.
func Fold(line string, width int, hang string) string {
	if Columns(line) <= width {
		return line
	}
	var out strings.Builder
	part, words := "", 0
	for _, word := range wordOf.FindAllString(line, -1) {
		if words > 0 && Columns(part+word) > width {
			out.WriteString(part + "\n")
			part, words = hang, 0
		}
		if words == 0 && out.Len() > 0 {
			word = strings.TrimLeft(word, " ")
			if word == "#" && strings.HasSuffix(hang, "# ") {
				continue // a comment goes on as one
			}
		}
		part, words = part+word, words+1
	}
	return out.String() + part
}

var colours = regexp.MustCompile("\x1b\\[[^m]*m")

// Columns is how many a text takes, colours aside. A character may take two, or none.
func Columns(s string) int { return displaywidth.String(colours.ReplaceAllString(s, "")) }
