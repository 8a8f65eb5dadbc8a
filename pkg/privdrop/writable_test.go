package privdrop

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
)

func TestMayWrite(t *testing.T) {
	if os.Geteuid() != 0 {
		mustrun.Lacks(t, "needs root")
	}
	dir := t.TempDir()
	for p := dir; p != "/tmp" && p != "/"; p = p[:lastSlash(p)] {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	id := Identity{UID: 61990, GID: 61991, Groups: []uint32{61991, 61992}}
	for name, tt := range map[string]struct {
		uid, gid int
		mode     os.FileMode
		want     error
	}{
		"root's": {0, 0, 0o755, unix.EACCES}, "its own": {61990, 0, 0o755, nil}, "its group's": {0, 61991, 0o775, nil},
		"another of its groups": {0, 61992, 0o775, nil}, "a group that it has not": {0, 61993, 0o775, unix.EACCES},
		"everybody's": {0, 0, 0o777, nil}, "its own, closed": {61990, 0, 0o500, unix.EACCES},
	} {
		if err := errors.Join(os.Chown(dir, tt.uid, tt.gid), os.Chmod(dir, tt.mode)); err != nil {
			t.Fatal(err)
		}
		if err := MayWrite(id, dir); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	if err := os.WriteFile(dir+"/by-root", nil, 0o600); err != nil { // nothing of it stays with this process
		t.Error(err)
	}
}

func lastSlash(p string) int {
	for i := len(p) - 1; i > 0; i-- {
		if p[i] == '/' {
			return i
		}
	}
	return 1
}
