package main

import (
	"io"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab/golden"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

// TestSessionsScreens: what people see, by the width of their terminal.
func TestSessionsScreens(t *testing.T) {
	at := time.Date(2026, 3, 2, 12, 0, 0, 0, time.Local)
	i := protocol.Info{Name: "agent", Windows: []protocol.WindowInfo{
		{ID: 0, Name: "claude", Title: "Working on what was asked for, and on some more", PID: 31, Cols: 120, Rows: 40, Started: at.Add(-26 * time.Hour), Clients: []protocol.ClientInfo{
			{Attached: at, Cols: 120, Rows: 40, Leader: true}, {UID: 1000, PID: 77, Attached: at, Read: true, Cols: 80, Rows: 24},
		}},
		{ID: 12, Name: "tests", PID: 4711, Started: at},
	}}
	golden.Screens(t, "sessions.screens.txt", "      ", func(w io.Writer) error { return writeSessions(w, i, at) })
}
