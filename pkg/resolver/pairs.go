package resolver

import (
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/audit"
)

const (
	pairTime = 2 * time.Second // how long the second question of a look-up may come behind the first
	maxPairs = 1024            // names that are kept
)

// pairs tells the second question of a look-up from the first: programs ask for A and AAAA of a name. Of too many names
// all are forgotten: then both questions count.
type pairs struct {
	window time.Duration
	mu     sync.Mutex
	asked  map[string]pair
}

// pair is what waits for a question of the other type.
type pair struct {
	qtype   uint16
	waiting int // questions
	last    time.Time
}

func newPairs() *pairs { return &pairs{window: pairTime, asked: map[string]pair{}} }

// first says whether a question begins a look-up. All but A and AAAA do.
func (p *pairs) first(q question, now time.Time) bool {
	if q.qtype != dns.TypeA && q.qtype != dns.TypeAAAA {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.asked[q.name]
	if now.Sub(w.last) >= p.window {
		w.waiting = 0
	}
	begins := w.waiting == 0 || w.qtype == q.qtype
	if begins {
		w = pair{q.qtype, w.waiting + 1, now}
	} else {
		w.waiting--
	}
	if len(p.asked) >= maxPairs {
		clear(p.asked)
	}
	p.asked[q.name] = w
	return begins
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
