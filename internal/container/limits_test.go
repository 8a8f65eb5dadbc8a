package container

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
)

// TestRoomForTasks reads the pids controller of both versions of cgroups.
func TestRoomForTasks(t *testing.T) {
	for what, tc := range map[string]struct {
		dir, most, used string
		room            uint64
		known           bool
	}{
		"version 2":       {"", "100\n", "30\n", 70, true},
		"version 1":       {"pids", "8\n", "5\n", 3, true},
		"more than it is": {"", "8\n", "11\n", 0, true},
		"no limit":        {"", "max\n", "30\n", 0, false},
		"no number":       {"pids", "many\n", "30\n", 0, false},
	} {
		root := t.TempDir()
		dir := filepath.Join(root, tc.dir)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"pids.max": tc.most, "pids.current": tc.used} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if room, _, known := roomForTasks(root); room != tc.room || known != tc.known {
			t.Errorf("%s: %d, %v", what, room, known)
		}
	}
	if _, _, known := roomForTasks(t.TempDir()); known {
		t.Error("a limit is known where there is no controller")
	}
}

// TestScarce: a limit that was met is the cause, and the remedy raises it in the
// words of what has started the container.
func TestScarce(t *testing.T) {
	for err, option := range map[error]string{unix.EMFILE: "nofile", unix.EAGAIN: "pids"} {
		for _, l := range []fault.Launch{fault.ByHand, fault.ByDocker, fault.ByPodman, fault.ByDevTool} {
			f := Scarce(l, fmt.Errorf("socket: %w", err), "start the guard")
			if f == nil || !strings.Contains(strings.ToLower(f.Remedy), option) || strings.Contains(f.Remedy, "log-level") || !strings.HasPrefix(f.Error(), "start the guard: socket: ") {
				t.Errorf("%v by %q: %v", err, l, f)
			}
		}
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if f := Scarce(fault.ByDocker, unix.EMFILE, "x"); f.Remedy != fault.ByDocker.MoreFiles(files.Cur) {
		t.Errorf("with a limit of %d: %s", files.Cur, f.Remedy)
	}
	if f := Scarce(fault.ByHand, fault.New(fault.Policy, "mend it", "wrong: %w", unix.EMFILE), "read the policy"); f != nil {
		t.Errorf("a cause that is known is replaced by %v", f)
	}
	if f := Scarce(fault.ByHand, unix.EPERM, "seal"); f != nil {
		t.Errorf("EPERM is no limit: %v", f)
	}
}
