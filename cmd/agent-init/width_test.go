package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/agent-init/agent-init/internal/text"
)

// TestNarrowTerminals: no help and no error has a line that a terminal of 60 columns would break within a word.
func TestNarrowTerminals(t *testing.T) {
	lines := [][]string{{"--help"}, {"lunch"}, {"launch", "--alow"}, {"-C"}, {"check", "/nonexistent/of/a/policy.yaml"}, {"completion", "powershell"}}
	for _, c := range visible() {
		lines = append(lines, []string{c.name, "--help"})
	}
	for _, args := range lines {
		ours, theirs, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		if err := pty.Setsize(ours, &pty.Winsize{Cols: 60, Rows: 24}); err != nil {
			t.Fatal(err)
		}
		said := make(chan string)
		go func() {
			b, _ := io.ReadAll(ours) // which ends with an error where the terminal does
			said <- string(b)
		}()
		run(environment{args: args, env: os.Environ(), stdin: theirs, stdout: theirs, stderr: theirs})
		theirs.Close()
		out := <-said
		ours.Close()
		if out == "" {
			t.Errorf("%q says nothing", args)
		}
		for line := range strings.Lines(out) {
			if line = strings.TrimRight(line, "\r\n"); text.Columns(line) > 60 && !strings.HasPrefix(strings.TrimSpace(line), "agent-init ") { // a command is copied
				t.Errorf("%q: %s", args, line)
			}
		}
	}
}
