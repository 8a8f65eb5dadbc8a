package client

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab/golden"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

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
		if err := (Sessions{Info: i}).Write(&b, noon); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		if len(lines) != 3 || !strings.HasSuffix(lines[2], want) {
			t.Errorf("%q is shown as %q, want %q at the end", title, lines, want)
		}
		clean(&i)
		if w := i.Windows[0]; w.Title != text.Clean(title) || w.Cwd != text.Clean(title) {
			t.Errorf("%q in JSON: %q and %q", title, w.Title, w.Cwd)
		}
	}
}

// TestSessionsScreens: what people see, by the width of their terminal.
func TestSessionsScreens(t *testing.T) {
	at := time.Date(2026, 3, 2, 12, 0, 0, 0, time.Local)
	i := protocol.Info{Name: "agent", Windows: []protocol.WindowInfo{
		{ID: 0, Name: "claude", Title: "Working on what was asked for, and on some more", PID: 31, Cols: 120, Rows: 40, Started: at.Add(-26 * time.Hour), Clients: []protocol.ClientInfo{
			{Attached: at, Cols: 120, Rows: 40, Leader: true}, {UID: 1000, PID: 77, Attached: at, Read: true, Cols: 80, Rows: 24},
		}},
		{ID: 12, Name: "tests", PID: 4711, Started: at},
	}}
	golden.Screens(t, "sessions.screens.txt", "      ", func(w io.Writer) error { return Sessions{Info: i}.Write(w, at) })
}

// TestSessionsGolden holds what programs read.
func TestSessionsGolden(t *testing.T) {
	golden.JSON(t, "sessions.golden.json", Sessions{1, protocol.Info{Name: "agent", Windows: []protocol.WindowInfo{
		{Name: "claude", Title: "a title", Cwd: "/workspace", PID: 42, Cols: 80, Rows: 24, Started: noon, Clients: []protocol.ClientInfo{
			{UID: 1000, PID: 50, Attached: noon, Typed: noon, Read: true},
		}},
	}}})
}
