package attach

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/agent-init/agent-init/internal/text"
)

// row is one of the screen, from the left.
type row []cell

// cell has a place of its own in a row, which nothing that is in it can leave. What stands in one was often chosen by the
// agent.
type cell struct {
	text  string
	width int // in columns; 0: all that is left
	style string
}

const (
	strong  = "1"
	faint   = "2"
	inverse = "7"
)

// paint draws rows on a screen of that size, which has what Over gives. Every cell begins at a column of its own, also
// where a terminal takes a character for wider than we do.
func paint(rows []row, columns, lines int) []byte {
	b := []byte("\x1b[?2026h")
	for y := range lines {
		b = fmt.Appendf(b, "\x1b[%d;1H", y+1)
		at := 0
		if y < len(rows) {
			for _, c := range rows[y] {
				width := columns - at
				if c.width > 0 {
					width = min(width, c.width)
				}
				if width <= 0 {
					break
				}
				b = fmt.Appendf(b, "\x1b[%dG\x1b[0;%sm%s\x1b[m", at+1, c.style, text.Fit(tame(c.text), width))
				at += width
			}
		}
		if at < columns {
			b = fmt.Appendf(b, "\x1b[%dG\x1b[K", at+1)
		}
	}
	return append(b, "\x1b[?2026l"...)
}

// tame is s as a cell may have it: nothing that a terminal acts on, and nothing at its beginning that would join what
// stands before.
func tame(s string) string {
	return strings.TrimLeftFunc(text.Clean(s), unicode.IsMark)
}

// spell is rows for a terminal that knows nothing but text.
func spell(rows []row) []byte {
	var b strings.Builder
	for _, r := range rows {
		line := ""
		for _, c := range r {
			if c.width > 0 {
				line += text.Fit(tame(c.text), c.width)
			} else {
				line += tame(c.text)
			}
		}
		b.WriteString("\r\n" + strings.TrimRight(line, " "))
	}
	b.WriteString("\r\n")
	return []byte(b.String())
}

// wrapped parts s into lines of that many columns, of which each begins with indent.
func wrapped(s, indent string, columns int) (lines []string) {
	for room := max(2, columns-len(indent)); ; {
		var head string
		head, s = text.Cut(s, room)
		if lines = append(lines, indent+head); s == "" {
			return lines
		}
	}
}

// words are rows of text that is parted between words, each of which begins with indent.
func words(style, s, indent string, columns int) (rows []row) {
	for _, part := range strings.Split(text.Fold(tame(s), columns-len(indent), ""), "\n") {
		for _, l := range wrapped(part, indent, columns) {
			rows = append(rows, line(style, "%s", l))
		}
	}
	return rows
}

// line is a row of one cell.
func line(style, format string, args ...any) row {
	return row{{text: fmt.Sprintf(format, args...), style: style}}
}

// keysOf are rows that say what keys do, as many as they need side by side.
func keysOf(columns int, keys ...string) (rows []row) {
	var now strings.Builder
	for _, k := range keys {
		if now.Len() > 0 && text.Columns(now.String())+3+text.Columns(k) > columns {
			rows = append(rows, line(faint, "%s", now.String()))
			now.Reset()
		}
		if now.Len() > 0 {
			now.WriteString("  ")
		}
		now.WriteString(" " + k)
	}
	return append(rows, line(faint, "%s", now.String()))
}
