package stage

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// SmallHeap is the GC percentage of processes with a few MiB of live data: they don't need a heap that doubles.
const SmallHeap = 50

// SettleTime is when what a start does at its end is over.
const SettleTime = 2 * time.Second

// What follows a start needs the processors, so little is collected meanwhile: at 16 MiB, or at five times of what is
// live (debug.SetGCPercent). To go on so until all names are resolved would leave a larger heap for ever.
const (
	startingHeap = 400
	startingTime = 200 * time.Millisecond
)

// Starting is for the beginning of a start, which is too short to be worth collecting in. No collection may be forced
// until begun is called (see Bursts), which sets the percentage a little later.
func Starting() (begun func(percent int)) {
	debug.SetGCPercent(-1)
	return func(percent int) {
		debug.SetGCPercent(startingHeap)
		time.AfterFunc(startingTime, func() { debug.SetGCPercent(percent) })
	}
}

// More threads than blocking calls ever take at once.
const (
	serverThreads = 8
	parentThreads = 2
)

// SpareThreads begins to have the Go runtime make threads, which it keeps, before an agent could leave no room for them:
// without one that it needs, the runtime ends the process. What is returned is for Settle.
func SpareThreads() (made func()) { return spareThreads(serverThreads) }

func spareThreads(n int) (made func()) {
	var making sync.WaitGroup
	release := make(chan struct{})
	for range n {
		making.Add(1)
		go func() {
			runtime.LockOSThread() // while it waits, this goroutine's is nobody else's
			defer runtime.UnlockOSThread()
			making.Done()
			<-release
		}()
	}
	return func() { making.Wait(); close(release) }
}

// Settle is for the end of a start. It waits for the threads of SpareThreads.
// After SettleTime it gives back what the start took of the heap.
func Settle(made func()) {
	made()
	time.AfterFunc(SettleTime, debug.FreeOSMemory)
}

// ErrKeeperGone ends a process that serves in peace: nobody could open anything for it.
var ErrKeeperGone = errors.New("the keeper is gone")

// Serve settles a process that serves, and says why ctx ends.
func Serve(ctx context.Context) error {
	Settle(SpareThreads())
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, ErrKeeperGone) {
		return cause
	}
	return nil
}
