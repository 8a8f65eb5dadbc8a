// Package text has words, times and columns for people, wherever they are said.
package text

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
	"unicode"
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

// Quoted is an entry as a word of a shell's.
func Quoted(line string) string {
	for _, c := range line {
		if c == ' ' || c == '*' || c == '[' {
			return "'" + line + "'"
		}
	}
	return line
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
func Shortly(d time.Duration) string {
	return Trimmed(d.Round(time.Second))
}

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
		if len(s) > len(zero) && s[len(s)-len(zero):] == zero {
			s = s[:len(s)-2]
		}
	}
	return s
}
