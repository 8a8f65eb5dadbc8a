package container

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTerm: a terminal that the image has no entry for is none that programs are told of.
func TestTerm(t *testing.T) {
	dir := t.TempDir()
	for _, entry := range []string{"x/xterm-kitty", "74/tmux-256color", "secret"} {
		path := filepath.Join(dir, entry)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for asked, want := range map[string]string{
		"": "", "dumb": "dumb", "xterm-kitty": "xterm-kitty", "tmux-256color": "tmux-256color",
		"xterm-ghostty": DefaultTerm, "x": DefaultTerm, "../secret": DefaultTerm, "x/xterm-kitty": DefaultTerm, ".": DefaultTerm, "\x00": DefaultTerm,
	} {
		term, known := termIn(asked, []string{filepath.Join(dir, "none"), dir})
		if term != want || known != (term == asked) {
			t.Errorf("%q: %q, %v", asked, term, known)
		}
	}
}
