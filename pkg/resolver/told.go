package resolver

import (
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/audit"
)

// A look-up is one line in the log: what came of A and AAAA of a name is told together.

// told returns the lines of the log that are due when l has ended with said, nil if
// that was recorded already. While the question for the other type is under way,
// its lookup takes this one's word along; if it ended a moment ago, the look-up has
// its line, unless that tells of no address and said does. A line is for one of each
// type: the next question begins another look-up. The lock is held.
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
	e := s.cache.get([]byte(q.name), other.qtype, p, now)
	if e != nil && e.alone && e.asker == said.Asker && now.Sub(e.made) < s.pairs.window &&
		said.Verdict == audit.Allow && e.rcode != dns.RcodeServerFailure && (said.IP == "" || len(e.addrs) > 0) {
		e.alone = false
		return nil
	}
	if own := s.cache.get([]byte(q.name), q.qtype, p, now); own != nil {
		own.alone, own.asker = true, said.Asker
	}
	return []audit.Event{*said}
}

// joined is what came of both questions of a look-up: one line if it is the same,
// and nobody else's.
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
