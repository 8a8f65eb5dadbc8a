package broker

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// bursts of requests leave tens of megabytes behind, which the runtime would keep for minutes: the streams that they began
// last, and take so little that it sees no need to collect.
type bursts struct{ last, freed uint64 } // bytes that the heap had given out: when it was looked at, and at the end of a burst

const (
	calm  = 8 << 20  // a second, of many streams
	burst = 16 << 20 // is worth a collection
)

// over takes what the heap has given out so far, once a second, and says whether much has come and no more does.
func (b *bursts) over(given uint64) bool {
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
