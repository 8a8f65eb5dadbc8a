package gateway

import "io"

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
			switch {
			case err == errFull:
				err = refusedHeadSize
			case err == io.EOF && len(b) > 0:
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
	}
}

// isToken says whether c may be in a token (RFC 9110, section 5.6.2).
func isToken(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	switch c {
	case '!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~':
		return true
	}
	return false
}

func isTokens(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isToken(s[i]) {
			return false
		}
	}
	return s != ""
}
