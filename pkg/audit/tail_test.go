package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTail: the last lines, and no half of one.
func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(path, []byte("first\nsecond\nthird\nhalf"), 0o600); err != nil {
		t.Fatal(err)
	}
	for bytes, want := range map[int64]string{100: "first second third", 23: "first second third", 22: "second third", 16: "third", 11: "third", 10: "", 4: "", 0: ""} {
		var got []string
		if err := Tail(path, bytes, func(line []byte) { got = append(got, strings.TrimSpace(string(line))) }); err != nil || strings.Join(got, " ") != want {
			t.Errorf("of %d bytes: %q, want %q (%v)", bytes, got, want, err)
		}
	}
	if err := Tail(path+".none", 1, nil); err == nil {
		t.Error("a file that is not there was read")
	}
}
