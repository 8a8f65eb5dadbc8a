package main

import (
	"strings"
	"unicode"
)

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
