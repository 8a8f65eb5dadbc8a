package keeper

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFilesState: every way in which files come to be others is seen, and
// nothing else is.
func TestFilesState(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// As a volume of Kubernetes: allowlist.txt -> ..data/allowlist.txt, ..data -> ..1
	write("..1/allowlist.txt", "a.example\n")
	write("..2/allowlist.txt", "b.example\n")
	must(os.Symlink("..1", filepath.Join(dir, "..data")))
	must(os.Symlink("..data/allowlist.txt", filepath.Join(dir, "allowlist.txt")))
	last := filesState(dir, filepath.Join(dir, "above"), filepath.Join(dir, "saved.txt"), "/etc/hosts")
	for _, step := range []struct {
		what    string
		do      func()
		changed bool
	}{
		{"nothing", func() {}, false},
		{"a swapped link", func() {
			must(os.Symlink("..2", filepath.Join(dir, "..new")))
			must(os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")))
		}, true},
		{"another directory", func() { write("other/file", "x") }, false},
		{"a new file", func() { write("policy.yaml", "domains: []\n") }, true},
		{"a new list", func() { write("allowlist.d/a.txt", "a.example\n") }, true},
		{"a second list", func() { write("allowlist.d/b.txt", "b.example\n") }, true},
		{"what was saved", func() { write("saved.txt", "c.example\n") }, true},
		{"its mode", func() { must(os.Chmod(filepath.Join(dir, "allowlist.d/b.txt"), 0o666)) }, true},
		{"replaced by its like", func() {
			write("copy", "b.example\n")
			must(os.Rename(filepath.Join(dir, "copy"), filepath.Join(dir, "allowlist.d/b.txt")))
		}, true},
		{"removed", func() { must(os.Remove(filepath.Join(dir, "allowlist.d/a.txt"))) }, true},
		{"renamed", func() {
			must(os.Rename(filepath.Join(dir, "allowlist.d/b.txt"), filepath.Join(dir, "allowlist.d/c.txt")))
		}, true},
		{"a ceiling", func() { write("above/ceiling.d/c.txt", "c.example\n") }, true},
		{"its key", func() { write("above/ceiling.pub", "c\n") }, true},
		{"a link in it", func() {
			must(os.Symlink("../other", filepath.Join(dir, "above/ceiling.d/..data")))
		}, true},
		{"nothing again", func() {}, false},
	} {
		step.do()
		now := filesState(dir, filepath.Join(dir, "above"), filepath.Join(dir, "saved.txt"), "/etc/hosts")
		if (now != last) != step.changed {
			t.Errorf("%s: seen as a change: %v", step.what, now != last)
		}
		last = now
	}
}

// TestWatchedWaits: files that are still changing are not read, and those that
// were read are not read again.
func TestWatchedWaits(t *testing.T) {
	w := watched{loaded: 1, seen: 1}
	for i, step := range []struct {
		now uint64
		due bool
	}{{1, false}, {2, false}, {3, false}, {3, true}} {
		if got := w.due(step.now); got != step.due {
			t.Errorf("look %d: %v", i, got)
		}
	}
	w.loaded = 3
	for range 3 {
		if w.due(3) {
			t.Error("read twice")
		}
	}
}
