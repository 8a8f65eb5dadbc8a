package lease

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// manyLeased is a ledger with n names, each of which lasts longer than those before it.
func manyLeased(t testing.TB, n int) *Ledger {
	l, _ := newTestLedger(t, `domains: ["*.many.example:8443"]`)
	l.total = 4 * n // of which names below wildcards have half
	for i := range n {
		addr := netip.AddrFrom4([4]byte{45, byte(i >> 16), byte(i >> 8), byte(i)})
		name := fmt.Sprintf("n%d.many.example", i)
		if _, admitted := l.Lease(name, []netip.Addr{addr}, time.Minute); len(admitted) != 1 {
			t.Fatalf("name %d has no lease", i)
		}
		l.names[name].leases[0].expires += time.Duration(i)
	}
	return l
}

// TestReportOfMany: the names that last longest are published, in that order, and the others counted.
func TestReportOfMany(t *testing.T) {
	const n = 5 * maxPublishedNames
	names, more := manyLeased(t, n).open()
	if len(names) != maxPublishedNames || more != n-maxPublishedNames {
		t.Fatalf("%d names, and %d more", len(names), more)
	}
	for i, name := range names {
		if want := fmt.Sprintf("n%d.many.example", n-1-i); name.Name != want {
			t.Fatalf("name %d is %s, not %s", i, name.Name, want)
		}
	}
	few, more := manyLeased(t, 3).open()
	if i := slices.IndexFunc(few, func(n Name) bool { return n.Name == "n0.many.example" }); i != 2 || len(few) != 3 || more != 0 {
		t.Errorf("of three names: %v, and %d more", few, more)
	}
}
