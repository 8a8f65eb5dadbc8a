package stage

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// smallHeap is the GC percentage of processes with a few MiB of live data: they don't need a heap that doubles.
	smallHeap = 50

	// settleTime is when what a start does at its end is over.
	settleTime = 2 * time.Second
)

// More threads than blocking calls ever take at once.
const (
	ServerThreads = 8
	ParentThreads = 2
)

// Settle is for the end of a start. The heap stays small from then on, and what the start took of it is given back.
func Settle(threads int) {
	spareThreads(threads)
	debug.SetGCPercent(smallHeap)
	time.AfterFunc(settleTime, debug.FreeOSMemory)
}

// spareThreads makes the Go runtime create n threads, which it keeps, before an agent could leave no room for them:
// without one that it needs, the runtime ends the process.
func spareThreads(n int) {
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
	making.Wait()
	close(release)
}
