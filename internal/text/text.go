// Package text has words, times and columns for people, wherever they are said.
package text

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
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

// Painted is s in a colour of the terminal's, if that is to be seen.
func Painted(s, code string, coloured bool) string {
	if !coloured || code == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Figures is a number in three figures at most, its thousands in the unit: "1.23k" with nothing between.
func Figures(n uint64, between string) string {
	if n < 1000 {
		return strconv.FormatUint(n, 10) + between
	}
	f, unit := float64(n), ""
	for units := "kMGTPE"; f >= 999.5; units = units[1:] {
		f, unit = f/1000, units[:1]
	}
	return strings.TrimSuffix(fmt.Sprintf("%#.3g", f), ".") + between + unit
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
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// FirstLine is what stands before the first break.
func FirstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
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

// JSON writes v for programs. A terminal may show it all the same, and so what Clean takes away is escaped.
func JSON(w io.Writer, v any) error { return writeJSON(w, v, "  ") }

// JSONLine is JSON in one line.
func JSONLine(w io.Writer, v any) error { return writeJSON(w, v, "") }

func writeJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(escaped(b.Bytes()))
	return err
}

// escaped is JSON without characters that a terminal acts on, or that reorder text. Below U+0020 encoding/json has none.
func escaped(b []byte) []byte {
	visible := func(r rune) bool { return r == '\n' || r == unicode.ReplacementChar || unicode.IsPrint(r) }
	if !bytes.ContainsFunc(b, func(r rune) bool { return !visible(r) }) {
		return b
	}
	var out []byte
	for _, r := range string(b) {
		if visible(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}
