package terminal

import (
	"strings"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"
)

const (
	joiner     = '\u200d' // ZWJ: the next character belongs to the same
	emojiStyle = '\ufe0f' // VS16: the character before is an emoji
)

// width returns how many columns r takes: 0 if it combines with what is before it,
// -1 if it is no character at all.
func width(r rune) int {
	switch {
	case r < 0x20 || r >= 0x7f && r < 0xa0:
		return -1
	case r < 0x300:
		return 1
	case r >= 0x2500 && r < 0x2600: // lines and blocks, very common
		return 1
	case isRegional(r):
		return 1 // a pair of them is a flag, and two wide
	case r >= 0x1160 && r < 0x1200, r >= 0xd7b0 && r < 0xd800:
		return 0 // Hangul vowels and finals join the initial before them
	}
	return displaywidth.Rune(r)
}

// joins reports whether r, which has a width, is one with the text before it.
func joins(base string, r rune) bool {
	switch {
	case len(base) < 2:
		return false
	case isModifier(r):
		return true
	case isRegional(r):
		first, n := utf8.DecodeRuneInString(base)
		return n == len(base) && isRegional(first)
	}
	return strings.HasSuffix(base, string(joiner))
}

func isModifier(r rune) bool { return r >= 0x1f3fb && r <= 0x1f3ff } // skin tones
func isRegional(r rune) bool { return r >= 0x1f1e6 && r <= 0x1f1ff } // halves of flags
