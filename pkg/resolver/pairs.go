package resolver

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// pairTime is how long the second question of a look-up may come behind the first.
const pairTime = 2 * time.Second

// pairs tells the second question of a look-up from the first: programs ask for A and
// AAAA of a name. It is a table without locks, of a fixed size. A name may push out
// another one: then both questions count.
type pairs struct {
	window time.Duration
	seed   maphash.Seed
	epoch  time.Time
	slots  [1024]atomic.Uint64 // see first
}

func newPairs() *pairs { return &pairs{window: pairTime, seed: maphash.MakeSeed(), epoch: time.Now()} }

// The parts of a slot: a tag of the name in the upper half, how many questions wait
// for one of the other type, whether they are for AAAA, and when the last one came,
// in hundredths of a second.
const (
	pairOne   = 1 << 24
	pairCount = 0xff << 24
	pairSix   = 1 << 23
	pairClock = pairSix - 1
)

// first says whether a question begins a look-up. All but A and AAAA do.
func (p *pairs) first(name []byte, qtype uint16, now time.Time) bool {
	if qtype != dns.TypeA && qtype != dns.TypeAAAA {
		return true
	}
	h := maphash.Bytes(p.seed, name)
	slot, tag := &p.slots[h%uint64(len(p.slots))], h>>32<<32
	clock := uint64(now.Sub(p.epoch)/(10*time.Millisecond)) & pairClock
	kind := uint64(0)
	if qtype == dns.TypeAAAA {
		kind = pairSix
	}
	for {
		old := slot.Load()
		age := time.Duration((clock-old)&pairClock) * 10 * time.Millisecond
		waiting := old & pairCount
		if old>>32<<32 != tag || age >= p.window {
			waiting = 0
		}
		begins := waiting == 0 || old&pairSix == kind
		next := tag | min(waiting+pairOne, pairCount) | kind | clock
		if !begins {
			next = old - pairOne
		}
		if slot.CompareAndSwap(old, next) {
			return begins
		}
	}
}
