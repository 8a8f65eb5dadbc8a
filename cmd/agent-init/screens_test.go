package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

// TestHelpIsWhole: the help has each command for people once, none of the others, and no
// line that is wider than a terminal.
func TestHelpIsWhole(t *testing.T) {
	var b bytes.Buffer
	usage(&b)
	for _, c := range commands() {
		if n, want := strings.Count(b.String(), "\n  "+c.name+" "), map[bool]int{true: 0, false: 1}[c.group == ""]; n != want {
			t.Errorf("%s is listed %d times", c.name, n)
		}
	}
	for line := range strings.Lines(b.String()) {
		if text.Columns(line) > 81 {
			t.Errorf("%d columns: %s", text.Columns(line)-1, line)
		}
	}
	if strings.Count(b.String(), "\n\n") < 6 {
		t.Errorf("no sections:\n%s", b.String())
	}
}

// TestSessionsTable has a header, and says nothing of a client's size that it does
// not know, nor who typed last where there is one client only.
func TestSessionsTable(t *testing.T) {
	at := noon.Local()
	client := protocol.ClientInfo{UID: 1000, PID: 50, Attached: at, Leader: true}
	window := protocol.WindowInfo{Name: "main", Title: "a title", PID: 42, Cols: 80, Rows: 24, Started: at, Clients: []protocol.ClientInfo{client}}
	table := func() []string {
		var b strings.Builder
		if err := writeSessions(&b, protocol.Info{Name: "agent", Windows: []protocol.WindowInfo{window}}, noon); err != nil {
			t.Fatal(err)
		}
		return slices.Collect(strings.Lines(b.String()))
	}
	lines := table()
	if len(lines) != 4 || !strings.Contains(lines[1], "NO  NAME") || strings.Index(lines[1], "SIZE") != strings.Index(lines[2], "80x24") {
		t.Errorf("%q", lines)
	}
	if all := strings.Join(lines, ""); strings.Contains(all, "0x0") || strings.Contains(all, "typed last") || !strings.Contains(all, "attached: uid 1000, pid 50") {
		t.Errorf("%s", all)
	}
	window.Clients = append(window.Clients, protocol.ClientInfo{PID: 0, Cols: 100, Rows: 30, Attached: at, Read: true})
	all := strings.Join(table(), "")
	for _, want := range []string{"pid 50, typed last", "the container's terminal, read-only", "100x30"} {
		if !strings.Contains(all, want) {
			t.Errorf("want %q in\n%s", want, all)
		}
	}
}
