package session

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A key that a person pressed is a few bytes, apart from others. Its echo comes
// within echoTime, or is not waited for.
const (
	echoTime  = 150 * time.Microsecond
	handBytes = 32
	handApart = 4 * time.Millisecond
)

// awaitEcho looks for the answer to a key without going to sleep: for the
// client, waking up takes longer than the rest of its work.
func (a *attachment) awaitEcho(sock []unix.PollFd) {
	a.byHand = false
	for begun := time.Now(); time.Since(begun) < echoTime; {
		if n, err := unix.Poll(sock, 0); n > 0 || err != nil {
			return
		}
		yield()
	}
}

// yield lets other processes run that want to (sched_yield(2)).
func yield() { _, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }
