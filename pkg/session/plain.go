package session

import (
	"strings"

	"github.com/agent-init/agent-init/pkg/session/terminal"
)

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
