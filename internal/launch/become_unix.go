//go:build linux || darwin

package launch

import (
	"os"
	"os/exec"
	"syscall"
)

// become goes on as another program, so that the terminal, its signals and the exit code are that program's.
func become(cmd *exec.Cmd) error {
	if cmd.Err != nil {
		return cmd.Err
	}
	return &os.PathError{Op: "exec", Path: cmd.Path, Err: syscall.Exec(cmd.Path, cmd.Args, cmd.Environ())}
}

// nonblock has the opening of a pipe not wait for who writes into it.
const nonblock = syscall.O_NONBLOCK

// ownerOf is whose a file is.
func ownerOf(path string) (uid, gid int) {
	if st, err := os.Stat(path); err == nil {
		if st, ok := st.Sys().(*syscall.Stat_t); ok {
			return int(st.Uid), int(st.Gid)
		}
	}
	return os.Getuid(), os.Getgid()
}
