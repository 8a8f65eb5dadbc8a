package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenPlain opens a file to read it and append to it, or makes it. On the way to it there may be no link: where root
// writes into a directory of the agent's, such as the workspace, a link would be the agent's choice of another file.
// For the same reason it must be a regular file that has no other name.
func OpenPlain(path string) (*os.File, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	dir, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/", Err: err}
	}
	defer func() { unix.Close(dir) }()
	parents, name := filepath.Split(strings.TrimPrefix(abs, "/"))
	for part := range strings.SplitSeq(strings.TrimSuffix(parents, "/"), "/") {
		if part == "" {
			continue
		}
		next, err := unix.Openat(dir, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			return nil, fmt.Errorf("%s: %s is a link, or no directory", path, part)
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
		unix.Close(dir)
		dir = next
	}
	// Without O_NONBLOCK a FIFO would keep us until somebody writes to it.
	fd, err := unix.Openat(dir, name, unix.O_RDWR|unix.O_APPEND|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o644)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s is a link", path)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 {
		unix.Close(fd)
		return nil, fmt.Errorf("%s is not a regular file with just this name", path)
	}
	return os.NewFile(uintptr(fd), path), nil
}
