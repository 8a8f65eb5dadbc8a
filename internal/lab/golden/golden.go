// Package golden holds what programs read in files of testdata.
package golden

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
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
