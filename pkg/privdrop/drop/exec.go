// Package drop turns a process that runs as root into one that has nothing left to lose, and proves it by reading back
// what the kernel says.
//
// Exec does it in a process of its own: the caller re-executes itself, so that there is one purpose, one locked thread and
// nothing to undo.
package drop

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/privdrop"
)

// shell executes scripts that do not name their interpreter.
const shell = "/bin/sh"

// Exec becomes what s says, verifies it, and executes the command in place of the calling
// process. It returns only if something failed: an *ExecError if the command can't be executed,
// a *privdrop.CapabilityError if a capability is missing. The calling process must exit then.
//
// Credentials belong to threads, so the goroutine keeps its own for ever; the exec ends the others.
func Exec(s privdrop.Spec) error {
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
	return Execute(s.Argv, environment(s.Env, s.Identity), syscall.Exec)
}

// Execute is execvpe(3), with exec in place of execve(2). Its error is an *ExecError.
func Execute(argv, env []string, exec func(path string, argv, env []string) error) error {
	var pathEnv string
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			pathEnv = value
		}
	}
	path, err := lookPath(argv[0], pathEnv)
	if err != nil {
		return err
	}
	errno := errnoOf(exec(path, argv, env))
	if errno == syscall.ENOEXEC && isText(path) {
		if !filepath.IsAbs(path) {
			path = "./" + path // not an option of the shell
		}
		errno = errnoOf(exec(shell, append([]string{shell, path}, argv[1:]...), env))
		path = shell
	}
	if errno == 0 {
		return nil
	}
	return &ExecError{path, errno}
}

// isText reports whether the file could be a script, by the test that shells use: no zero byte at its beginning.
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

// ours are the prefixes of variables that belong to agent-init or to whatever
// started it: they may hold secrets, or describe descriptors that are closed.
var ours = [...]string{"AGENT_INIT_", "LISTEN_", "NOTIFY_SOCKET="}

// environment returns base without the variables of ours, and with HOME, USER, LOGNAME and
// SHELL of id. The last of several definitions wins.
func environment(base []string, id privdrop.Identity) (env []string) {
	all := append(slices.Clone(base), "HOME="+id.Home, "USER="+id.Name, "LOGNAME="+id.Name, "SHELL="+id.Shell)
	seen := map[string]bool{}
	for _, v := range slices.Backward(all) {
		name, _, ok := strings.Cut(v, "=")
		isOurs := slices.ContainsFunc(ours[:], func(prefix string) bool { return strings.HasPrefix(v, prefix) })
		if ok && name != "" && !seen[name] && !isOurs && strings.IndexByte(v, 0) < 0 {
			seen[name] = true
			env = append(env, v)
		}
	}
	slices.Reverse(env)
	return env
}

// defaultPath is searched if the environment has no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// lookPath finds the file that a shell would execute for name, by the rights of the calling
// process. As execvp(3) does, it passes over what may not be executed, but remembers it for the
// *ExecError. It cleans no path, since that would change what ".." after a link means.
func lookPath(name, pathEnv string) (string, error) {
	if name == "" {
		return "", &ExecError{name, syscall.ENOENT}
	}
	if strings.Contains(name, "/") {
		if _, errno := executable(name); errno != 0 {
			return "", &ExecError{name, errno}
		}
		return name, nil
	}
	failure := syscall.ENOENT
	for dir := range strings.SplitSeq(cmp.Or(pathEnv, defaultPath), ":") {
		file := cmp.Or(dir, ".") + "/" + name
		switch there, errno := executable(file); {
		case errno == 0:
			return file, nil
		case !there && errno == syscall.EACCES: // a directory that the caller may not enter has nothing for it
		case errno == syscall.ENOENT || errno == syscall.ENOTDIR:
		default:
			failure = errno
		}
	}
	return "", &ExecError{name, failure}
}

// executable says why a file can't be executed, and whether it was seen at all.
func executable(file string) (there bool, why syscall.Errno) {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return false, errnoOf(err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return true, errnoOf(unix.Access(file, unix.X_OK))
	case unix.S_IFDIR:
		return true, syscall.EISDIR
	}
	return true, syscall.EACCES
}

func errnoOf(err error) (errno syscall.Errno) {
	if err != nil && !errors.As(err, &errno) {
		return syscall.EIO
	}
	return errno
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
	if unix.CloseRange(uint(3+n), 1<<32-1, unix.CLOSE_RANGE_CLOEXEC) == nil {
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
