// Package apart keeps the tests of a package apart from the machine that they run on.
package apart

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// done marks a process that is apart already, and those that it starts.
const done = "AGENT_INIT_TEST_APART"

// states are where agent-init keeps what is its own.
var states = []string{"/run/agent-init", "/dev/shm/agent-init", "/etc/agent-init", "/var/lib/agent-init", "/var/log/agent-init"}

// Main is TestMain for tests that look where agent-init keeps its state, or run programs that have settings. They find
// nothing there but what they put there: whoever runs them has no home and no variables of theirs, and, if it is root, no
// agent-init has ever run here. All else of the machine is as it is.
func Main(m *testing.M) {
	if err := leave(); err != nil {
		fmt.Fprintln(os.Stderr, "keep the tests apart from this machine:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// leave executes this program again in a mount namespace of its own, in which the states are empty.
func leave() error {
	if os.Getenv(done) != "" {
		return nil
	}
	env := []string{done + "=1", "HOME=/proc/nonexistent"} // where not even root can make it
	// Go's own caches are no state of ours: without a home it has to be told where they are.
	if cache, err := os.UserCacheDir(); err == nil && os.Getenv("GOCACHE") == "" {
		env = append(env, "GOCACHE="+filepath.Join(cache, "go-build"))
	}
	if home, err := os.UserHomeDir(); err == nil && os.Getenv("GOPATH") == "" {
		env = append(env, "GOPATH="+filepath.Join(home, "go"))
	}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if name == "PATH" || name == "TMPDIR" || strings.HasPrefix(name, "GO") || strings.HasPrefix(name, "AGENT_INIT_TEST") ||
			name == "AGENT_INIT_BIN" || name == "AGENT_INIT_MUST_RUN" || name == "AGENT_INIT_GOLDEN" || name == "AGENT_INIT_UPDATE" {
			env = append(env, v)
		}
	}
	runtime.LockOSThread() // the thread that executes is the one that is left
	switch err := unix.Unshare(unix.CLONE_NEWNS); {
	case errors.Is(err, unix.EPERM): // who is not root, or in a container
	case err != nil:
		return err
	default:
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		for _, dir := range states {
			if _, err := os.Stat(dir); err != nil {
				continue
			}
			if err := unix.Mount("nothing", dir, "tmpfs", 0, "mode=0755"); err != nil {
				return fmt.Errorf("hide %s: %w", dir, err)
			}
		}
	}
	return syscall.Exec("/proc/self/exe", os.Args, env)
}
