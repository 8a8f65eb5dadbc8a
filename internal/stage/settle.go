package stage

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
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
// After SettleTime it gives back what the start took of the heap, and leaves the image.
func Settle(made func()) {
	made()
	time.AfterFunc(SettleTime, func() {
		debug.FreeOSMemory()
		leaveImage()
	})
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

// programHeader is Elf64_Phdr of elf(5).
type programHeader struct {
	kind, flags                                     uint32
	offset, address, physical, size, memory, aligns uint64
}

// Of elf(5) and getauxval(3).
const (
	segmentLoad, segmentHeaders, segmentWritable = 1, 6, 2
	auxHeaders, auxHeaderSize, auxHeaderCount    = 3, 4, 5
)

// leaveImage lets go of the pages of the program's own code and constants. A start runs through
// most of them, and what follows needs few: those come back as they are used. The others would
// be taken for pages that are in use when memory is short (folio_check_references in mm/vmscan.c);
// they are marked as cold first, since unmapping them would count as a use too (madvise(2)).
func leaveImage() {
	page := uintptr(unix.Getpagesize())
	bias, headers := loadedImage()
	for _, h := range headers {
		if h.kind != segmentLoad || h.flags&segmentWritable != 0 {
			continue
		}
		begin := (bias + uintptr(h.address) + page - 1) &^ (page - 1)
		end := (bias + uintptr(h.address+h.size)) &^ (page - 1)
		if begin < end {
			image := unsafe.Slice((*byte)(at(begin)), end-begin)
			_ = unix.Madvise(image, unix.MADV_COLD)
			_ = unix.Madvise(image, unix.MADV_DONTNEED)
		}
	}
}

// loadedImage finds the mapped program headers, and how far from its file's addresses the program lies.
func loadedImage() (bias uintptr, headers []programHeader) {
	aux, err := unix.Auxv()
	if err != nil {
		return 0, nil
	}
	told := map[uintptr]uintptr{}
	for _, a := range aux {
		told[a[0]] = a[1]
	}
	found, count := told[auxHeaders], told[auxHeaderCount]
	if found == 0 || told[auxHeaderSize] != unsafe.Sizeof(programHeader{}) {
		return 0, nil
	}
	headers = unsafe.Slice((*programHeader)(at(found)), count)
	for _, h := range headers {
		if h.kind == segmentHeaders {
			return found - uintptr(h.address), headers
		}
	}
	return 0, nil
}

// at is a pointer to an address outside of the heap, which the collector leaves alone.
func at(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }
