package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// E73: root writes through no link, and to nothing that another could have made.
func TestE73Planted(t *testing.T) {
	chown := func(t *testing.T, path string) {
		mustrun.Root(t)
		if err := os.Lchown(path, 1000, 1000); err != nil {
			t.Fatal(err)
		}
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// Each plants something below root, where the log is root/a/log.
	tests := map[string]struct {
		plant func(t *testing.T, root, victim string)
		want  string
	}{
		"link at the file": {func(t *testing.T, root, victim string) {
			must(t, os.Symlink(victim, filepath.Join(root, "a/log", FileName)))
		}, "symbolic link"},
		"dangling link at the file": {func(t *testing.T, root, victim string) {
			must(t, os.Symlink(filepath.Join(root, "made"), filepath.Join(root, "a/log", FileName)))
		}, "symbolic link"},
		"hard link at the file": {func(t *testing.T, root, victim string) {
			must(t, os.Link(victim, filepath.Join(root, "a/log", FileName)))
		}, "hard links"},
		"link at an older file": {func(t *testing.T, root, victim string) {
			must(t, os.Symlink(victim, filepath.Join(root, "a/log", FileName+".1")))
		}, "symbolic link"},
		"pipe at the file": {func(t *testing.T, root, victim string) {
			must(t, unix.Mkfifo(filepath.Join(root, "a/log", FileName), 0o644))
		}, "not a regular file"},
		"file of the agent's": {func(t *testing.T, root, victim string) {
			path := filepath.Join(root, "a/log", FileName)
			must(t, os.WriteFile(path, nil, 0o644))
			chown(t, path)
		}, "belongs to uid 1000"},
		"file that others may write": {func(t *testing.T, root, victim string) {
			path := filepath.Join(root, "a/log", FileName)
			must(t, os.WriteFile(path, nil, 0o644))
			must(t, os.Chmod(path, 0o666))
		}, "written by others"},
		"link at the directory": {func(t *testing.T, root, victim string) {
			must(t, os.Remove(filepath.Join(root, "a/log")))
			must(t, os.Symlink(filepath.Dir(victim), filepath.Join(root, "a/log")))
		}, "symbolic link"},
		"link at an ancestor": {func(t *testing.T, root, victim string) {
			must(t, os.RemoveAll(filepath.Join(root, "a")))
			must(t, os.Symlink(filepath.Dir(victim), filepath.Join(root, "a")))
		}, "symbolic link"},
		"directory of the agent's": {func(t *testing.T, root, victim string) {
			chown(t, filepath.Join(root, "a/log"))
		}, "belongs to uid 1000"},
		"ancestor of the agent's": {func(t *testing.T, root, victim string) {
			chown(t, filepath.Join(root, "a"))
		}, "belongs to uid 1000"},
		"directory that others may write": {func(t *testing.T, root, victim string) {
			must(t, os.Chmod(filepath.Join(root, "a/log"), 0o777))
		}, "written by others"},
		"sticky directory": {func(t *testing.T, root, victim string) {
			must(t, os.Chmod(filepath.Join(root, "a/log"), 0o777|os.ModeSticky))
		}, "written by others"},
		"ancestor that others may write": {func(t *testing.T, root, victim string) {
			must(t, os.Chmod(filepath.Join(root, "a"), 0o777))
		}, "written by others"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			victim := filepath.Join(t.TempDir(), "victim")
			must(t, os.WriteFile(victim, []byte("precious"), 0o644))
			must(t, os.MkdirAll(filepath.Join(root, "a/log"), 0o755))
			tt.plant(t, root, victim)
			l, err := Open(Options{Dir: filepath.Join(root, "a/log")})
			if err == nil {
				l.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not say %q", err, tt.want)
			}
			if got, _ := os.ReadFile(victim); string(got) != "precious" {
				t.Errorf("the victim is now %q", got)
			}
			if _, err := os.Lstat(filepath.Join(root, "made")); err == nil {
				t.Error("made a file through a dangling link")
			}
			if entries, _ := os.ReadDir(filepath.Dir(victim)); len(entries) != 1 {
				t.Error("wrote beside the victim")
			}
		})
	}
}

func TestOpenRelative(t *testing.T) {
	if _, err := Open(Options{Dir: "log"}); err == nil {
		t.Error("a relative directory was opened")
	}
}

// Rotation replaces a link that root left at an older number; it never follows it.
func TestE73RotationKeepsVictim(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	l := openTest(t, Options{Dir: dir, MaxSize: maxEncoded + 1, Files: 2})
	if err := os.Symlink(victim, filepath.Join(dir, FileName+".1")); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		l.Write(Event{Kind: DNS, Verdict: Deny, Name: "evil.example"})
	}
	if got, _ := os.ReadFile(victim); string(got) != "precious" {
		t.Errorf("the victim is now %q", got)
	}
	if l.Err() != nil {
		t.Error(l.Err())
	}
}

// TestOpenDirBelowRootsGroup: who is in root's group, as agents of some images are,
// could move the log's directory away from a place that this group may write.
func TestOpenDirBelowRootsGroup(t *testing.T) {
	mustrun.Root(t)
	for _, c := range []struct {
		mode    os.FileMode
		gid     int
		refused bool
	}{
		{0o755, 0, false}, {0o775, 0, true}, {0o775 | os.ModeSticky, 0, false}, {0o775, 4, false}, {0o777, 4, true},
	} {
		above := filepath.Join(t.TempDir(), "log")
		for _, err := range []error{os.Mkdir(above, 0o755), os.Chown(above, 0, c.gid), os.Chmod(above, c.mode)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		d, err := OpenDir(filepath.Join(above, "agent-init"))
		if (err != nil) != c.refused {
			t.Errorf("below %v of group %d: %v", c.mode, c.gid, err)
		}
		if err == nil {
			d.Close()
		}
	}
}
