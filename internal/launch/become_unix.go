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
