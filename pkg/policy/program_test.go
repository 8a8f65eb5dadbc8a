package policy

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// TestCheckProgram: a program counts as root's if nobody else can change it, or put
// another one where it is looked for.
func TestCheckProgram(t *testing.T) {
	mustrun.Root(t)
	for name, tt := range map[string]struct {
		mode    os.FileMode // of the directory
		owner   int
		file    os.FileMode // of the program; 0: there is none
		link    string      // where it leads instead
		missing bool        // the directory is not there
		want    string      // in the error; "" if there is none, "nobody" if it is missing
	}{
		"root's":                              {mode: 0o755, file: 0o711},
		"nothing there":                       {mode: 0o755, want: "nobody"},
		"a directory that is missing":         {mode: 0o755, missing: true, want: "nobody"},
		"a file that everyone writes":         {mode: 0o755, file: 0o777, want: "agent-init is writable by everyone"},
		"everyone's directory":                {mode: 0o777, file: 0o755, want: "bin is writable by everyone"},
		"everyone's sticky directory":         {mode: 0o777 | os.ModeSticky, want: "is writable by everyone (mode 1777)"},
		"root's in everyone's sticky one":     {mode: 0o777 | os.ModeSticky, file: 0o755},
		"made in everyone's sticky directory": {mode: 0o777 | os.ModeSticky, missing: true, want: "is writable by everyone (mode 1777)"},
		"root's group's directory":            {mode: 0o775, want: "bin is writable by group 0"},
		"the agent's directory":               {mode: 0o755, owner: agent, want: "bin belongs to uid 1000"},
		"a link into everyone's directory":    {mode: 0o755, link: "/tmp/agent-init-missing/x", want: "/tmp/ is writable by everyone"},
		"a link to nothing of root's":         {mode: 0o755, link: "/etc/agent-init-missing/x", want: "nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "bin")
			for _, err := range []error{os.Mkdir(dir, 0o755), os.Chmod(dir, tt.mode), os.Chown(dir, tt.owner, 0)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if tt.missing {
				dir += "/more/bin"
			}
			program := dir + "/agent-init"
			if tt.file != 0 {
				if err := errors.Join(os.WriteFile(program, nil, 0o700), os.Chmod(program, tt.file)); err != nil {
					t.Fatal(err)
				}
			}
			if tt.link != "" {
				if err := os.Symlink(tt.link, program); err != nil {
					t.Fatal(err)
				}
			}
			err := CheckProgram(program)
			var file *FileError
			switch {
			case tt.want == "" && err != nil, tt.want == "nobody" && !errors.Is(err, fs.ErrNotExist):
				t.Errorf("%v", err)
			case tt.want != "" && tt.want != "nobody" && (!errors.As(err, &file) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// TestCheckProgramReadOnly: on a mount that is read-only nobody writes, whatever the modes say.
func TestCheckProgramReadOnly(t *testing.T) {
	mustrun.Root(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=1777"); err != nil {
		t.Skipf("no mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := CheckProgram(dir + "/agent-init"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("writable: %v", err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if err := CheckProgram(dir + "/agent-init"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read-only: %v", err)
	}
}
