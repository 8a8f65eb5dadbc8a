package judge

import (
	"strings"
	"unicode/utf8"

	"github.com/agent-init/agent-init/internal/lazy"
)

// next reads the next token of a document.
func (d *document) next() error {
	if d.tokens++; d.tokens > maxTokens {
		return errDocument
	}
	if err := d.ignored(); err != nil {
		return err
	}
	if d.at == len(d.text) {
		d.kind = 0
		return nil
	}
	rest := d.text[d.at:]
	switch c := rest[0]; {
	case nameStart(c):
		end := 1
		for end < len(rest) && (nameStart(rest[end]) || digit(rest[end])) {
			end++
		}
		d.kind, d.name, d.at = 'n', rest[:end], d.at+end
		return nil
	case strings.IndexByte("!$():=@[]{}", c) >= 0: // & and | are of type systems
		d.kind, d.at = c, d.at+1
		return nil
	case strings.HasPrefix(rest, "..."):
		d.kind, d.at = '.', d.at+3
		return nil
	case c == '"':
		d.kind = 's'
		return d.quoted(rest)
	case c == '-' || digit(c):
		d.kind = 'v'
		return d.number(rest)
	}
	return errDocument
}

// ignored goes over blanks, commas and comments. A byte order mark is ignored at the start alone.
func (d *document) ignored() error {
	if d.at == 0 {
		d.at = len(d.text) - len(strings.TrimPrefix(d.text, "\ufeff"))
	}
	comment := false
	for ; d.at < len(d.text); d.at++ {
		switch c := d.text[d.at]; {
		case c == '\r' && !strings.HasPrefix(d.text[d.at:], "\r\n"):
			return errDocument // some take it for the end of a line, others do not
		case c == '\n', c == '\r':
			comment = false
		case comment && (c < ' ' && c != '\t' || c == '\x7f' || otherLine(d.text[d.at:])):
			return errDocument
		case comment, c == ' ', c == '\t', c == ',':
		case c == '#':
			comment = true
		default:
			return nil
		}
	}
	return nil
}

// otherLine says whether a text begins with a character that ended a line in drafts of the language, and in JavaScript.
func otherLine(s string) bool {
	c, _ := utf8.DecodeRuneInString(s)
	return c == '\u0085' || c == '\u2028' || c == '\u2029'
}

func nameStart(c byte) bool { return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func digit(c byte) bool { return '0' <= c && c <= '9' }

// quoted is a string. Its end is the same to all readers.
func (d *document) quoted(rest string) error {
	if block, ok := strings.CutPrefix(rest, `"""`); ok {
		end := strings.Index(block, `"""`)
		if end < 0 || strings.ContainsAny(block[:end], "\"\\") || strings.HasPrefix(block[end+3:], `"`) || odd(block[:end], "\t\r\n") {
			return errDocument
		}
		d.at += end + 6
		return nil
	}
	for i := 1; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '"':
			d.at += i + 1
			return nil
		case c == '\\' && i+1 < len(rest) && strings.IndexByte(`"\/bfnrtu`, rest[i+1]) >= 0:
			i++
		case c == '\\' || c == '\x7f' || c < ' ' && c != '\t' || otherLine(rest[i:]):
			return errDocument
		}
	}
	return errDocument
}

// odd says whether a text has control characters besides some, or ends a line by a carriage return alone.
func odd(s, besides string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < ' ' || c == '\x7f') && strings.IndexByte(besides, c) < 0 || c == '\r' && !strings.HasPrefix(s[i:], "\r\n") {
			return true
		}
	}
	return false
}

var numeral = lazy.Pattern(`^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?`)

// number is an integer or a float. Neither a name nor a digit or a point may follow it at once.
func (d *document) number(rest string) error {
	end := len(numeral().FindString(rest))
	if end == 0 || end < len(rest) && (nameStart(rest[end]) || digit(rest[end]) || rest[end] == '.') {
		return errDocument
	}
	d.at += end
	return nil
}
