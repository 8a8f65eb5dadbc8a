package lease

import (
	"math"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/firewall"
)

// TestMoments: a lease is never shorter than was promised, nor by a quarter of a second longer, and time stands still
// before it runs backwards.
func TestMoments(t *testing.T) {
	l, c := newTestLedger(t, "domains: []")
	for _, passed := range []time.Duration{-time.Hour, -1, 0, 1, quarter - 1, quarter, time.Hour + 1} {
		for _, d := range []time.Duration{1, quarter, time.Second + 1, MaxLease, renewedFor} {
			c.Now = l.began.Add(passed)
			now := l.now()
			if behind := passed - now.sub(0); behind < 0 || behind >= quarter {
				t.Errorf("%v after the beginning, the book is %v behind", passed, behind)
			}
			if more := now.add(d).sub(now) - d; more < 0 || more >= quarter {
				t.Errorf("%v lasts %v more", d, more)
			}
		}
	}
	c.Now = l.began.Add(40 * 365 * 24 * time.Hour)
	if l.now() != math.MaxInt32 || l.now().add(time.Hour) != math.MaxInt32 {
		t.Errorf("after 40 years it is %d, and an hour later %d", l.now(), l.now().add(time.Hour))
	}
}

// TestSpots: nothing of an element is lost, and no two are one.
func TestSpots(t *testing.T) {
	seen := map[spot]bool{}
	for _, a := range addrs("192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "0.0.0.0", "::") {
		for _, h := range []firewall.Holder{firewall.Agent, firewall.Gated, firewall.Inspected, firewall.Broker, firewall.Exporter} {
			e := firewall.Element{Addr: a, Proto: 17, Port: 65535, For: h}
			s := spotOf(e)
			if s.Element() != e || s.For() != h || s.Addr() != a || seen[s] {
				t.Errorf("%v became %v", e, s.Element())
			}
			seen[s] = true
		}
	}
}
