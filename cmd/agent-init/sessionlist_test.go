package main

import (
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

// A title is the program's: whatever it is, it is one quoted word at the end of its line.
func TestSessionsTitle(t *testing.T) {
	for title, want := range map[string]string{
		"vim": `"vim"`, "": "",
		"x\u202egnp.exe\u2066\u2028\u200b": `"x?gnp.exe???"`,
		"\x1b[31m\x9b31m\n":                `"?[31m?31m?"`,
		"build\" attached: uid 0, pid 1":   `"build\" attached: uid 0, pid 1"`,
		strings.Repeat("ü", 300):           `"` + strings.Repeat("ü", maxShownTitle-1) + `…"`,
	} {
		var b strings.Builder
		i := protocol.Info{Name: "agent", Windows: []protocol.WindowInfo{{ID: 3, Name: "w", Title: title, Cwd: title, Started: time.Unix(0, 0)}}}
		if err := writeSessions(&b, i, noon); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		if len(lines) != 3 || !strings.HasSuffix(lines[2], want) {
			t.Errorf("%q is shown as %q, want %q at the end", title, lines, want)
		}
		cleanSession(&i)
		if w := i.Windows[0]; w.Title != text.Clean(title) || w.Cwd != text.Clean(title) {
			t.Errorf("%q in JSON: %q and %q", title, w.Title, w.Cwd)
		}
	}
}
