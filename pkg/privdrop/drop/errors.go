package drop

import (
	"errors"
	"fmt"
	"syscall"
)

// DirError says that the working directory can't be entered.
type DirError struct {
	Dir string
	UID uint32
	Err error
}

func (e *DirError) Error() string {
	return fmt.Sprintf("enter the working directory %s as uid %d: %v", e.Dir, e.UID, errors.Unwrap(e.Err))
}

// Unwrap returns what the kernel said.
func (e *DirError) Unwrap() error { return e.Err }

// ExecError says that a command could not be executed.
type ExecError struct {
	Path  string
	Errno syscall.Errno
}

func (e *ExecError) Error() string { return fmt.Sprintf("execute %s: %v", e.Path, e.Errno) }

// Unwrap returns the errno.
func (e *ExecError) Unwrap() error { return e.Errno }

// ExitCode is the exit code that a shell would give: 127 if the command was not found, 126 if it could not be executed.
func (e *ExecError) ExitCode() int {
	if e.Errno == syscall.ENOENT || e.Errno == syscall.ENOTDIR {
		return 127
	}
	return 126
}
