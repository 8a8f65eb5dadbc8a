package text

import (
	"strings"

	"github.com/clipperhouse/displaywidth"
)

// Cut parts s where it would be wider than that many columns. Of a character that is wider by itself nothing is shown.
func Cut(s string, columns int) (head, rest string) {
	if len(s) <= columns && ascii(s) {
		return s, ""
	}
	used, at := 0, 0
	for g := displaywidth.StringGraphemes(s); g.Next(); {
		if used += g.Width(); used > columns {
			if at == 0 {
				return "", s[len(g.Value()):]
			}
			return s[:at], s[at:]
		}
		at += len(g.Value())
	}
	return s, ""
}

// Fit is s in exactly so many columns: what there is no room for is left out, with a mark in its place.
func Fit(s string, columns int) string {
	head, _ := Cut(s, columns)
	if head != s && columns > 0 {
		head, _ = Cut(s, columns-1)
		head += "…"
	}
	return head + strings.Repeat(" ", max(0, columns-Columns(head)))
}

func ascii(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}
