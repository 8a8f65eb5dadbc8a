//go:build unix

package ui

import (
	"os"
	"syscall"
)

// end kills the client and what it has started, which may hold its terminal. A client leads its session, so its group has
// the number of its process (setsid(2)).
func end(client *os.Process) error { return syscall.Kill(-client.Pid, syscall.SIGKILL) }
