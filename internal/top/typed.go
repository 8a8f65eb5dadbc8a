package top

import (
	"unicode/utf8"
)

// sequences are the keys that send more than a character: as xterm does, in both modes of its cursor keys, and as the
// console of Linux does.
var sequences = map[string]key{
	"\x1b[A": keyUp, "\x1bOA": keyUp, "\x1b[B": keyDown, "\x1bOB": keyDown,
	"\x1b[5~": keyPageUp, "\x1b[6~": keyPageDown,
	"\x1b[H": keyHome, "\x1bOH": keyHome, "\x1b[1~": keyHome, "\x1b[7~": keyHome,
	"\x1b[F": keyEnd, "\x1bOF": keyEnd, "\x1b[4~": keyEnd, "\x1b[8~": keyEnd,
	"\x1b[Z": keyBackTab, "\x1b[200~": keyPaste, "\x1b[201~": keyPasted,
}

// maxSequence is how long one may be. What is longer is none.
const maxSequence = 32

// parseKeys takes keys from what a terminal has sent. What may be the start of a sequence is left: with more behind it, or
// as the key Escape if nothing comes.
func parseKeys(b []byte, more bool) (keys []key, rest []byte) {
	for len(b) > 0 {
		if b[0] != 0x1b {
			r, n := utf8.DecodeRune(b)
			if r == utf8.RuneError && n == 1 {
				if more && !utf8.FullRune(b) {
					return keys, b
				}
				r = rune(keyOther)
			}
			if r == '\n' {
				r = rune(keyEnter)
			}
			keys, b = append(keys, key(r)), b[n:]
			continue
		}
		n, whole := sequence(b)
		if !whole && more && len(b) < maxSequence {
			return keys, b
		}
		k, known := sequences[string(b[:n])]
		switch {
		case n == 1:
			k = keyEsc
		case !known:
			k = keyOther
		}
		keys, b = append(keys, k), b[n:]
	}
	return keys, nil
}

// sequence is how long the one is that b begins with (ECMA-48, 5.4; SS3 has one character), and whether it is all there.
func sequence(b []byte) (n int, whole bool) {
	switch {
	case len(b) < 2:
		return 1, false
	case b[1] == 'O':
		return min(3, len(b)), len(b) >= 3
	case b[1] != '[':
		return 1, true
	}
	for i := 2; i < len(b); i++ {
		if b[i] >= 0x40 && b[i] <= 0x7e {
			return i + 1, true
		}
		if b[i] < 0x20 || b[i] > 0x3f || i >= maxSequence {
			return i, true
		}
	}
	return len(b), false
}
