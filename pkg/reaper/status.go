package reaper

import (
	"fmt"
	"syscall"
)

// Status is how a process ended.
type Status struct {
	Exited int            // exit code, if Signal is 0
	Signal syscall.Signal // the signal that killed it, or 0
}

// Code is the exit code that a shell would report: the process's own, or
// 128+n if signal n killed it.
func (s Status) Code() int {
	if s.Signal != 0 {
		return 128 + int(s.Signal)
	}
	return s.Exited
}

// String is for log lines: "exit 3" or "signal 15 (terminated)".
func (s Status) String() string {
	if s.Signal != 0 {
		return fmt.Sprintf("signal %d (%v)", int(s.Signal), s.Signal)
	}
	return fmt.Sprintf("exit %d", s.Exited)
}

func statusOf(w syscall.WaitStatus) Status {
	if w.Signaled() {
		return Status{Signal: w.Signal()}
	}
	return Status{Exited: w.ExitStatus()}
}
