package stage

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/privdrop"
)

// UnreadableSelf is a copy of this program that may be executed but not read. The kernel makes a process that executes
// such a file undumpable from its first instruction (would_dump in fs/exec.c): an agent that runs already, under the
// same uid, can't trace the probe and write its report. path is the copy for a process that has it at that descriptor.
func UnreadableSelf(at int) (copied *os.File, path string, err error) {
	if copied, err = copySelf(); err != nil {
		return nil, "", fmt.Errorf("copy the program: %w", err)
	}
	return copied, fdPath(at), nil
}

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

func copySelf() (*os.File, error) {
	self, err := os.Open(Self)
	if err != nil {
		return nil, err
	}
	defer self.Close()
	fd, err := unix.MemfdCreate("agent-init", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	// A writer would keep it from being executed.
	w := os.NewFile(uintptr(fd), "agent-init")
	defer w.Close()
	if _, err := io.Copy(w, self); err != nil {
		return nil, err
	}
	r, err := os.Open(fdPath(fd))
	if err != nil {
		return nil, err
	}
	mode := os.FileMode(0o111)
	if privdrop.OnGVisor() {
		// It executes no file that the user can't read. There an agent can trace
		// its own descendants only (its Yama is always on), and the probe is none.
		mode = 0o555
	}
	if err := w.Chmod(mode); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}
