package stage

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// Bursts of work leave memory behind that the runtime would keep for minutes: what follows takes so little that it sees no
// need to collect. Small work that adds up to as much counts as one. Not safe for concurrent use.
type Bursts struct {
	Calm  uint64 // a burst goes on while the heap gives out so many bytes between two looks
	Worth uint64 // bytes given out since the last collection here that are worth another, or a quarter of what is live

	last, freed uint64 // bytes that the heap had given out: at the last look, and at the end of the last burst
}

// SmallBursts are those of processes with SmallHeap.
func SmallBursts() Bursts { return Bursts{Calm: 256 << 10, Worth: 1 << 20} }

// GiveBack has the memory of a burst given back, if one is over. It is to be called about once a second.
func (b *Bursts) GiveBack() {
	if given, live, collecting := heap(); collecting && b.over(given, live) {
		go giveBack()
	}
}

// over takes what the heap has given out so far and what of it is live, and says whether much has come and no more does.
// What a collection costs grows with what is live, and an agent makes the bursts.
func (b *Bursts) over(given, live uint64) bool {
	quiet := given-b.last < b.Calm
	b.last = given
	if !quiet || given-b.freed < max(b.Worth, live/4) {
		return false
	}
	b.freed = given
	return true
}

// heap is what the heap has given out so far, what was live at the last collection, and whether the runtime collects.
// While that is off (-1 percent), a collection would have the runtime take huge pages for its own lists, 8 MiB that it
// keeps (mgc.go, minHeapForMetadataHugePages).
func heap() (given, live uint64, collecting bool) {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/gogc:percent"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64(), int64(samples[2].Value.Uint64()) >= 0
}

// giveBack collects twice: what lies in pools outlives the first collection (sync.Pool).
func giveBack() {
	runtime.GC()
	debug.FreeOSMemory()
}
