package resolver

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/audit"
)

// pairTime is how long the second question of a look-up may come behind the first.
const pairTime = 2 * time.Second

// pairs tells the second question of a look-up from the first: programs ask for A and AAAA of a name. It is a table
// without locks, of a fixed size. A name may push out another one: then both questions count.
type pairs struct {
	window time.Duration
	seed   maphash.Seed
	epoch  time.Time
	slots  [1024]atomic.Uint64 // see first
}

func newPairs() *pairs { return &pairs{window: pairTime, seed: maphash.MakeSeed(), epoch: time.Now()} }

// The parts of a slot: a tag of the name in the upper half, how many questions wait for one of the other type, whether
// they are for AAAA, and when the last one came, in hundredths of a second.
const (
	pairOne   = 1 << 24
	pairCount = 0xff << 24
	pairSix   = 1 << 23
	pairClock = pairSix - 1
)

// first says whether a question begins a look-up. All but A and AAAA do.
func (p *pairs) first(q question, now time.Time) bool {
	if q.qtype != dns.TypeA && q.qtype != dns.TypeAAAA {
		return true
	}
	h := maphash.String(p.seed, q.name)
	slot, tag := &p.slots[h%uint64(len(p.slots))], h>>32<<32
	clock := uint64(now.Sub(p.epoch)/(10*time.Millisecond)) & pairClock
	kind := uint64(0)
	if q.qtype == dns.TypeAAAA {
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

// A look-up is one line in the log: what came of A and AAAA of a name is told together.

// told returns the lines of the log that are due when l has ended with said, nil if that was recorded already. While
// the question for the other type is under way, its lookup takes this one's word along; if it ended a moment ago, the
// look-up has its line, unless that tells of no address and said does. A line is for one of each type: the next
// question begins another look-up. The lock is held.
func (s *Server) told(l *lookup, q question, said *audit.Event) []audit.Event {
	other := question{q.name, dns.TypeA}
	if q.qtype == dns.TypeA {
		other.qtype = dns.TypeAAAA
	}
	beside := s.lookups[other]
	switch {
	case said == nil && l.beside == nil:
		return nil
	case said == nil:
		return []audit.Event{*l.beside}
	case l.beside != nil:
		return joined(*l.beside, *said)
	case beside != nil && beside.beside == nil:
		beside.beside = said
		return nil
	}
	now, p := time.Now(), s.config.Policy()
	e := s.cache.get(other, p, now)
	if e != nil && e.alone && e.asker == said.Asker && now.Sub(e.made()) < s.pairs.window &&
		said.Verdict == audit.Allow && e.rcode != dns.RcodeServerFailure && (said.IP == "" || len(e.addrs) > 0) {
		e.alone = false
		return nil
	}
	if own := s.cache.get(q, p, now); own != nil {
		own.alone, own.asker = true, said.Asker
	}
	return []audit.Event{*said}
}

// joined is what came of both questions of a look-up: one line if it is the same, and nobody else's.
func joined(a, b audit.Event) []audit.Event {
	if a.Verdict != b.Verdict || a.Enforce != b.Enforce || a.Rule != b.Rule || a.Asker != b.Asker || a.PID != b.PID {
		return []audit.Event{a, b}
	}
	if a.IP == "" { // the address tells more
		a, b = b, a
	}
	if a.Reason != b.Reason {
		a.Reason += "; " + strings.TrimSpace(b.Reason)
	}
	return []audit.Event{a}
}
