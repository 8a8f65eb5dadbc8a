package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
	"unicode"
)

// Words for people, wherever they are said.

// clean is s as a terminal may have it: the agent chooses names, and a control
// character or a mark that reorders text could make a line look like another.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// counted is how many there are of what one and more name: "1 name", "2 names".
func counted[N int | uint64](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func times[N int | uint64](n N) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// quoted is an entry as a word of a shell's.
func quoted(line string) string {
	for _, c := range line {
		if c == ' ' || c == '*' || c == '[' {
			return "'" + line + "'"
		}
	}
	return line
}

func ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return time.Since(t).Round(time.Second).String() + " ago"
}

// firstFault is the first error of a policy, which stands below a headline.
func firstFault(s string) string {
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

// inOneLine is an error of several lines as the log takes it.
func inOneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// causeOf is what an error of a file says beside the file's path, for who names it.
func causeOf(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// shortly is a time as people write it: 10m, 1h30m.
func shortly(d time.Duration) string {
	return trimmed(d.Round(time.Second))
}

// roughly is a time in which nobody counts the seconds if it is longer than an hour.
func roughly(d time.Duration) string {
	if d > time.Hour {
		d = d.Round(time.Minute)
	}
	return shortly(d)
}

// trimmed is a time without the zeros at its end.
func trimmed(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if len(s) > len(zero) && s[len(s)-len(zero):] == zero {
			s = s[:len(s)-2]
		}
	}
	return s
}
