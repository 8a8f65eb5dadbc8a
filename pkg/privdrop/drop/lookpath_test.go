package drop

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/internal/netns"
)

// TestLookPathHidden: a directory of PATH that the user may not enter hides what is
// in it. A command that is nowhere else is not found, as for a shell.
func TestLookPathHidden(t *testing.T) {
	mustrun.Root(t)
	dir := t.TempDir()
	for _, err := range []error{
		os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755), os.Mkdir(dir+"/hidden", 0o700), os.Mkdir(dir+"/open", 0o755),
		os.WriteFile(dir+"/hidden/tool", nil, 0o755), os.WriteFile(dir+"/open/tool", nil, 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	type found struct {
		path string
		err  error
	}
	look := func(name, path string) (out found) {
		_ = netns.OnThread(func() error { // which ends with its uid
			_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, 1000, 0, 0)
			out.path, out.err = lookPath(name, path)
			return nil
		})
		return out
	}
	for _, c := range []struct {
		name, path string
		want       syscall.Errno
	}{
		{"absent", dir + "/hidden:" + dir + "/open", syscall.ENOENT},
		{"tool", dir + "/hidden", syscall.ENOENT},
		{"tool", dir + "/hidden:" + dir + "/open", 0},
		{dir + "/hidden/tool", "", syscall.EACCES}, // by its path it is known to be there, or not
	} {
		got := look(c.name, c.path)
		var exec *ExecError
		switch {
		case c.want == 0 && (got.err != nil || got.path != dir+"/open/tool"):
			t.Errorf("%s in %s: %q, %v", c.name, c.path, got.path, got.err)
		case c.want != 0 && (!errors.As(got.err, &exec) || exec.Errno != c.want):
			t.Errorf("%s in %s: %v, want %v", c.name, c.path, got.err, c.want)
		}
	}
}
