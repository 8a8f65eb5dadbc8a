// Package golden holds what programs read in files of testdata.
package golden

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/text"
)

// File compares got with a file of testdata; AGENT_INIT_GOLDEN=write makes it.
func File(t testing.TB, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("AGENT_INIT_GOLDEN") == "write" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s is a public contract; got:\n%s\nwant:\n%s", path, got, want)
	}
}

// JSON is File for what --json prints.
func JSON(t testing.TB, name string, v any) {
	t.Helper()
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	File(t, name, append(data, '\n'))
}

// Screens is File for what people see, on terminals of four widths and, last, in a file. No line is wider than its
// terminal, but for a command, which is there to be copied, and for a word that is wider by itself.
func Screens(t testing.TB, name, hang string, write func(w io.Writer) error) {
	t.Helper()
	var all strings.Builder
	for _, width := range []int{60, 80, 120, 200, 0} {
		var b strings.Builder
		var w io.Writer = &b
		if width > 0 {
			w = text.FoldedAt(&b, width, hang)
		}
		if err := write(w); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := text.Columns(strings.TrimSuffix(line, "\n")); width > 0 && n > width && !strings.Contains(line, "agent-init ") && len(strings.Fields(line)) > 1 {
				t.Errorf("%d columns in %d: %s", n, width, line)
			}
		}
		fmt.Fprintf(&all, "== %d columns\n%s", width, b.String())
	}
	File(t, name, []byte(all.String()))
}
