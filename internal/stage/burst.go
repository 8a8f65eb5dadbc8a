package stage

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// Bursts of work leave memory behind that the runtime would keep for minutes: whatever ended them takes so little that it
// sees no need to collect. Not safe for concurrent use.
type Bursts struct {
	Calm  uint64 // a burst goes on while the heap gives out so many bytes between two looks
	Worth uint64 // bytes that are worth a collection

	last, freed uint64 // bytes that the heap had given out: at the last look, and at the end of the last burst
}

// SmallBursts are those of processes with SmallHeap.
func SmallBursts() Bursts { return Bursts{Calm: 256 << 10, Worth: 1 << 20} }

// GiveBack has the memory of a burst given back, if one is over. It is to be called about once a second.
func (b *Bursts) GiveBack() {
	if b.over(givenOut()) {
		go giveBack()
	}
}

// over takes what the heap has given out so far, and says whether much has come and no more does.
func (b *Bursts) over(given uint64) bool {
	quiet := given-b.last < b.Calm
	b.last = given
	if !quiet || given-b.freed < b.Worth {
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
