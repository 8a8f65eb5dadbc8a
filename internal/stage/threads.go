package stage

import (
	"runtime"
	"sync"
)

// spareThreads is more than blocking calls ever take at once.
const spareThreads = 8

// SpawnThreads has the Go runtime make threads, which it keeps, before there is an
// agent that could leave no room for them: where none can be made when one is
// needed, the runtime ends the process.
func SpawnThreads() {
	var made sync.WaitGroup
	release := make(chan struct{})
	for range spareThreads {
		made.Add(1)
		go func() {
			runtime.LockOSThread() // while it waits, this goroutine's is nobody else's
			defer runtime.UnlockOSThread()
			made.Done()
			<-release
		}()
	}
	made.Wait()
	close(release)
}
