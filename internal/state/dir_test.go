package state

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// TestKernelTakeRuntimeDir: a volume that is mounted for anybody to write is root's alone afterwards, and
// one that somebody has used already is refused, however often.
func TestKernelTakeRuntimeDir(t *testing.T) {
	if os.Geteuid() != 0 {
		mustrun.Lacks(t, "directories that belong to root need root")
	}
	for name, c := range map[string]struct {
		mode    os.FileMode
		owner   int
		planted bool
		ok      bool
	}{
		"root's own":             {0o755, 0, true, true},
		"a volume":               {0o777, 0, false, true},
		"a volume with fsGroup":  {0o777 | os.ModeSetgid, 0, false, true},
		"a volume, used already": {0o777, 0, true, false},
		"sticky, used already":   {0o777 | os.ModeSticky, 0, true, false},
		"the agent's":            {0o755, 1000, false, false},
		"the agent's, for all":   {0o777, 1000, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(os.Mkdir(dir, 0o755))
			if c.planted {
				must(os.WriteFile(filepath.Join(dir, StatusFile), []byte("{}"), 0o644))
			}
			must(os.Chown(dir, c.owner, c.owner))
			must(os.Chmod(dir, c.mode))
			for range 2 {
				err := Take(dir)
				if err == nil {
					err = checkDir(dir)
				}
				if (err == nil) != c.ok {
					t.Errorf("got %v, want ok %v", err, c.ok)
				}
			}
		})
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if err := Take(link); err == nil {
		t.Error("a link was taken")
	}
}

// TestKernelAbove: a directory that others than root could move away is none to
// publish in.
func TestKernelAbove(t *testing.T) {
	mustrun.Root(t)
	for _, c := range []struct {
		mode       os.FileMode
		owner, gid int
		ok         bool
	}{
		{0o755, 0, 0, true}, {0o775, 0, 0, false}, {0o777, 0, 0, false}, {0o777 | os.ModeSticky, 0, 0, true},
		{0o775 | os.ModeSticky, 0, 0, true}, {0o775, 0, 1000, false}, {0o755, 1000, 0, false},
	} {
		above := filepath.Join(t.TempDir(), "run")
		for _, err := range []error{os.Mkdir(above, 0o755), os.Chown(above, c.owner, c.gid), os.Chmod(above, c.mode)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := checkAbove(filepath.Join(above, "agent-init")); (err == nil) != c.ok {
			t.Errorf("below %v of %d:%d: %v", c.mode, c.owner, c.gid, err)
		}
	}
}

// TestOverwrite: what is written over a file is read back, whether it is shorter or longer, and nothing is made anew.
func TestOverwrite(t *testing.T) {
	d := Dir(t.TempDir())
	if err := d.overwrite(StatusFile, []byte("{}")); err == nil {
		t.Error("a file was made")
	}
	if err := d.Write(StatusFile, 0o644, State{Phase: PhaseReady, Reason: "of some length"}); err != nil {
		t.Fatal(err)
	}
	for _, reason := range []string{"", "of some more length, by which the file grows"} {
		data, err := json.Marshal(State{Phase: PhaseFailed, Reason: reason})
		if err == nil {
			err = d.overwrite(StatusFile, data)
		}
		if err != nil {
			t.Fatal(err)
		}
		var s State
		if err := d.Read(StatusFile, &s); err != nil || s.Phase != PhaseFailed || s.Reason != reason {
			t.Errorf("%q and %q were read (%v), not %q", s.Phase, s.Reason, err, reason)
		}
	}
}
