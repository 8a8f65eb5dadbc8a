package launch

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"

	"github.com/agent-init/agent-init/internal/fault"
)

// become runs another program to its end, and ends as that did. What a person types is for the other.
func become(cmd *exec.Cmd) error {
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fault.Status(exit.ExitCode())
	}
	return err
}

// Files have no owner that an engine's virtual machine could know, and no pipe is opened by a path.
const nonblock = 0

func ownerOf(string) (uid, gid int) { return -1, -1 }
