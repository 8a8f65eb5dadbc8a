package guard

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
)

// TestKnown: what is remembered counts for that very name and port, for its time, and for as long as nothing was struck out.
func TestKnown(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	now := noon
	k := newKnown(&wire.Edition{Uint64: new(atomic.Uint64)})
	k.now = func() time.Time { return now }
	a, b := netip.MustParseAddrPort("192.0.2.1:443"), netip.MustParseAddrPort("192.0.2.1:80")
	want := func(name string, addr netip.AddrPort, holds bool) {
		t.Helper()
		if got := k.leasedTo(name, addr); got != holds {
			t.Errorf("%s at %s: %v, want %v", name, addr, got, holds)
		}
	}
	k.note("a.example", a, 0, noon.Add(time.Minute))
	want("a.example", a, true)
	want("a.example", b, false)
	want("b.example", a, false)

	now = noon.Add(time.Minute)
	want("a.example", a, false) // over
	k.note("a.example", a, 0, noon.Add(2*time.Minute))
	want("a.example", a, true)
	k.edition.Add(1)
	want("a.example", a, false) // something was struck out
	k.note("a.example", a, 0, noon.Add(2*time.Minute))
	want("a.example", a, false) // an answer from before that
	k.note("a.example", a, 1, noon.Add(2*time.Minute))
	want("a.example", a, true)
	k.note("b.example", a, 1, now)
	want("b.example", a, false) // over before it came

	for i := range 3 * maxKnown {
		k.note(fmt.Sprint(i), a, 1, noon.Add(time.Hour))
	}
	if n := len(k.leases); n > maxKnown {
		t.Errorf("%d leases are remembered", n)
	}
	want(fmt.Sprint(3*maxKnown-1), a, true)
}
