package gateway

import (
	"strings"
)

// readHead reads from src until it holds a whole message head, whose length it
// returns; the head stays with src. Lines end in CR LF and nothing else: a
// bare CR, a bare LF or a NUL ends the reading at once, wherever it stands.
func readHead(src *source, began func()) (int, error) {
	scanned, lineStart := 0, 0
	for {
		b := src.held()
		if len(b) > 0 && began != nil {
			began()
			began = nil
		}
		for ; scanned < len(b); scanned++ {
			switch c := b[scanned]; {
			case c == 0:
				return 0, refusedControl
			case scanned > 0 && b[scanned-1] == '\r' && c != '\n', c == '\n' && (scanned == 0 || b[scanned-1] != '\r'):
				return 0, refusedLineEnd
			case c == '\n':
				if scanned-1 == lineStart {
					return scanned + 1, nil
				}
				lineStart = scanned + 1
			case scanned == 0 && !isToken(c):
				return 0, refusedNotHTTP
			}
		}
		if err := src.fill(); err != nil {
			if err == errFull {
				return 0, refusedHeadSize
			}
			return 0, ended(err, len(b) > 0)
		}
	}
}

// isToken says whether c may be in a token (RFC 9110, section 5.6.2).
func isToken(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func isTokens(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 || !isToken(byte(r)) })
}
