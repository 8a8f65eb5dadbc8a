package netns

import (
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// TB is the part of testing.TB that Enter uses.
type TB interface {
	mustrun.TB
	Errorf(format string, args ...any)
	Cleanup(func())
}

// Enter puts the calling goroutine into a new network namespace until the test
// ends. Sockets that it opens and programs that it starts are in there; what
// other goroutines do is not. The test ends here if it does not run as root.
func Enter(tb TB) {
	tb.Helper()
	mustrun.Root(tb)
	runtime.LockOSThread()
	before, err := Open(own)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	outside, err := before.Inode()
	if err == nil {
		err = unix.Unshare(unix.CLONE_NEWNET)
	}
	if err != nil {
		before.Close()
		tb.Fatalf("enter a new network namespace: %v", err)
	}
	tb.Cleanup(func() {
		defer before.Close()
		// A thread that can't go back stays locked, and ends with its goroutine.
		if err := unix.Setns(before.fd, unix.CLONE_NEWNET); err != nil {
			tb.Errorf("leave the test's network namespace: %v", err)
			return
		}
		runtime.UnlockOSThread()
	})
	// What comes next must never reach the machine's own network.
	here, err := Open(own)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	defer here.Close()
	if inside, err := here.Inode(); err != nil || inside == outside {
		tb.Fatalf("still in the network namespace of before: %v", err)
	}
}
