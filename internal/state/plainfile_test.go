package state

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenPlain: what root writes in a directory of the agent's goes to that file, and
// to no other that the agent chose.
func TestOpenPlain(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.Mkdir(at("real"), 0o755), os.WriteFile(at("real/secret"), nil, 0o600), os.WriteFile(at("plain"), nil, 0o644),
		os.Symlink("real", at("linked")), os.Symlink("real/secret", at("link")), os.Link(at("real/secret"), at("hard")), unix.Mkfifo(at("fifo"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, ok := range map[string]bool{
		"plain": true, "new": true, "real/new": true,
		"linked/new": false, "link": false, "hard": false, "fifo": false, "real": false, "plain/x": false, "none/x": false,
	} {
		f, err := OpenPlain(at(name))
		if (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			f.Close()
		}
	}
}
