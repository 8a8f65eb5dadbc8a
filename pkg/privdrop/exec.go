package privdrop

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// shell executes scripts that do not name their interpreter.
const shell = "/bin/sh"

// Exec becomes what s says, verifies it, and executes the command in place of
// the calling process. It returns only if something failed: an *ExecError if
// the drop went well but the command can't be executed, a *CapabilityError if
// a capability is missing. The calling process must exit then, whatever the
// error.
//
// Credentials belong to threads, so the calling goroutine stays on its own for
// ever; the kernel ends the others at the exec.
func Exec(s Spec) error {
	runtime.LockOSThread()
	if len(s.Argv) == 0 {
		return errors.New("no command")
	}
	if err := drop(s); err != nil {
		return err
	}
	if err := verify(s); err != nil {
		return fmt.Errorf("the drop of privileges did not hold: %w", err)
	}
	if err := keepDescriptors(s.KeepFDs); err != nil {
		return fmt.Errorf("close file descriptors: %w", err)
	}
	if s.Dir != "" {
		if err := os.Chdir(s.Dir); err != nil {
			return &DirError{s.Dir, s.Identity.UID, err}
		}
	}
	return execute(s.Argv, Environment(s.Env, s.Identity))
}

// execute is execvpe(3).
func execute(argv, env []string) error {
	path, err := lookPath(argv[0], lookup(env, "PATH"), "")
	if err != nil {
		return err
	}
	errno := errnoOf(syscall.Exec(path, argv, env))
	if errno == syscall.ENOEXEC && isText(path) {
		if !filepath.IsAbs(path) {
			path = "./" + path // not an option of the shell
		}
		errno = errnoOf(syscall.Exec(shell, append([]string{shell, path}, argv[1:]...), env))
		path = shell
	}
	return &ExecError{path, errno}
}

// isText reports whether the file could be a script, by the test that shells
// use: no zero byte at its beginning.
func isText(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 256)
	n, _ := f.Read(head)
	return bytes.IndexByte(head[:n], 0) < 0
}

func lookup(env []string, name string) string {
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// keepDescriptors leaves the command 0, 1, 2 and the next n.
func keepDescriptors(n int) error {
	if n < 0 || n > 1024 {
		return fmt.Errorf("%d is not a number of descriptors to keep", n)
	}
	for fd := 3; fd < 3+n; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("descriptor %d: %w", fd, err)
		}
	}
	err := unix.CloseRange(uint(3+n), 1<<32-1, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	// Kernels before 5.11, and gVisor.
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, entry := range dir {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd < 3+n {
			continue
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil && err != unix.EBADF {
			return err
		}
	}
	return nil
}
