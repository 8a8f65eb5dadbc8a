package lease

import (
	"math"
	"net/netip"
	"time"

	"github.com/agent-init/agent-init/pkg/firewall"
)

// The books of many names are the most that the keeper has in memory: what they hold of each lease is kept small, and
// without pointers, which the collector would follow.

// moment is a time, as what had passed since the book was begun: in quarters of a second, for 17 years.
type moment int32

const quarter = time.Second / 4

// after is a moment no earlier than d after the beginning.
func after(d time.Duration) moment {
	n := d / quarter
	if d%quarter > 0 {
		n++ // nobody has less than was promised
	}
	return moment(max(-math.MaxInt32, min(n, math.MaxInt32)))
}

func (m moment) add(d time.Duration) moment { return after(m.sub(0) + d) }
func (m moment) sub(o moment) time.Duration { return time.Duration(int64(m)-int64(o)) * quarter }

// now is monotonic, as the clock of the kernel's sets is; no later than it is.
func (l *Ledger) now() moment { return -after(-l.Now().Sub(l.began)) }

// time is what the clock of people shows at m, as it goes now: it may have been set since the book was begun.
func (l *Ledger) time(m moment) time.Time {
	now := l.Now()
	return now.Add(m.sub(0) - now.Sub(l.began))
}

// spot is a firewall.Element, whose address has no zone.
type spot struct {
	addr  [16]byte
	port  uint16
	proto uint8
	who   who
}

// who goes out, and whether to an IPv4 address.
type who uint8

const ipv4 who = 1 << 7

func spotOf(e firewall.Element) spot {
	s := spot{e.Addr.As16(), e.Port, e.Proto, who(e.For)}
	if e.Addr.Is4() {
		s.who |= ipv4
	}
	return s
}

// Addr is the address.
func (s spot) Addr() netip.Addr {
	a := netip.AddrFrom16(s.addr)
	if s.who&ipv4 != 0 {
		a = a.Unmap()
	}
	return a
}

// For is who goes out there.
func (s spot) For() firewall.Holder { return firewall.Holder(s.who &^ ipv4) }

// Element is what was made a spot.
func (s spot) Element() firewall.Element {
	return firewall.Element{Addr: s.Addr(), Proto: s.proto, Port: s.port, For: s.For()}
}
