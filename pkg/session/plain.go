package session

import (
	"strings"

	"github.com/agent-init/agent-init/pkg/session/terminal"
)

// plainer takes everything out of a stream but text, for a terminal that knows
// no escape sequences (TERM=dumb).
type plainer struct{ state plainState }

type plainState uint8

const (
	plainText   plainState = iota
	plainEscape            // after ESC
	plainCSI               // up to the final byte
	plainOne               // one more byte: of a charset, or the like
	plainString            // up to ST or BEL
	plainEnd               // ESC within a string
)

func (p *plainer) write(dst, src []byte) []byte {
	for _, c := range src {
		switch {
		case c == can || c == sub:
			p.state = plainText
		case p.state == plainEnd && c == '\\':
			p.state = plainText
		case c == esc && p.state == plainString:
			p.state = plainEnd
		case c == esc:
			p.state = plainEscape
		case p.state == plainText:
			if c >= ' ' && c != 0x7f || c == '\n' || c == '\r' || c == '\t' || c == '\b' || c == bel {
				dst = append(dst, c)
			}
		case p.state == plainEscape || p.state == plainEnd:
			p.escaped(c)
		case p.state == plainCSI && c >= 0x40 && c <= 0x7e, p.state == plainOne && c >= 0x30, p.state == plainString && c == bel:
			p.state = plainText
		}
	}
	return dst
}

func (p *plainer) escaped(c byte) {
	switch {
	case c == '[':
		p.state = plainCSI
	case strings.IndexByte("]P_^X", c) >= 0:
		p.state = plainString
	case c >= ' ' && c < '0':
		p.state = plainOne
	default:
		p.state = plainText
	}
}

// plainScreen is the screen as lines of text, to the cursor and no further.
func plainScreen(t *terminal.Terminal) []byte {
	var b strings.Builder
	_, y, _ := t.Cursor()
	last := y
	lines := make([]string, 0, y+1)
	for i, row := range t.Screen() {
		var line strings.Builder
		for _, c := range row {
			line.WriteString(c.Text)
		}
		text := strings.TrimRight(line.String(), " ")
		if text != "" {
			last = max(last, i)
		}
		lines = append(lines, text)
	}
	for i, text := range lines[:last+1] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(text)
	}
	return []byte("\r\n" + b.String())
}
