package stage

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// Bursts of work leave tens of megabytes behind, which the runtime would keep for minutes: what they began, such as
// streams and leases, lasts, and takes so little more that it sees no need to collect.
type Bursts struct{ last, freed uint64 } // bytes that the heap had given out: when it was looked at, and at the end of a burst

const (
	calm  = 8 << 20  // a second, as of many streams
	burst = 16 << 20 // is worth a collection
)

// Look is to be called once a second, by one goroutine. Behind a burst it has the heap give back what it does not hold.
func (b *Bursts) Look() {
	if b.over(givenOut()) {
		go giveBack()
	}
}

// over takes what the heap has given out so far, once a second, and says whether much has come and no more does.
func (b *Bursts) over(given uint64) bool {
	quiet := given-b.last < calm
	b.last = given
	if !quiet || given-b.freed < burst {
		return false
	}
	b.freed = given
	return true
}

// givenOut is what the heap has given out so far.
func givenOut() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// giveBack collects twice: what lies in pools outlives the first collection (sync.Pool).
func giveBack() {
	runtime.GC()
	debug.FreeOSMemory()
}
