package lease

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

// TestLedgerBegin: a policy that is about one name has that one judged, however many others there are. Those are judged
// later, the first of them below wildcards that it is about, and at once where somebody asks.
func TestLedgerBegin(t *testing.T) {
	for _, n := range []int{10, 20000} {
		l, _ := newTestLedger(t, "domains: [gone.test:443, '*.wild.test:443', '*.other.test:443']\nlimits: {leases: 65536}")
		l.Lease("gone.test", addrs("192.0.2.1"), time.Minute)
		for i := range n {
			l.Lease(fmt.Sprintf("n%d.wild.test", i), []netip.Addr{netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)})}, time.Minute)
		}
		l.Lease("a.other.test", addrs("192.0.2.2"), time.Minute)
		l.Lease("b.other.test", addrs("192.0.2.3"), time.Minute)
		p := parsePolicy(t, "domains: [gone.test:443, '*.wild.test:443', '*.other.test:443', '!gone.test', '!*.other.test', '!n7.wild.test']\nlimits: {leases: 65536}")
		closed := l.Begin(p, policy.Change{})
		if len(closed) != 2 || !slices.Contains(closed, tcp("192.0.2.1", 443)) || !slices.Contains(closed, tcp("203.0.0.7", 443)) {
			t.Fatalf("%d names: closed %v", n, closed)
		}
		if left, _ := l.LeasedTo("a.other.test", tcp("192.0.2.2", 443)); left != 0 {
			t.Error("what is denied is leased, since nobody has come to it yet")
		}
		if !l.Holds(tcp("192.0.2.2", 443)) {
			t.Error("not in the book, and nobody was told to take it out")
		}
		judged := 0
		for _, nl := range l.names {
			if nl.judged == l.judging.policies {
				judged++
			}
		}
		if judged > 0 {
			t.Errorf("%d of %d names were judged besides", judged, n)
		}
		closed, moved, more := l.Sift()
		if !slices.Contains(closed, tcp("192.0.2.2", 443)) || !slices.Contains(closed, tcp("192.0.2.3", 443)) || len(moved) != 0 || more != (n > atOnce) {
			t.Errorf("%d names: closed %v, moved %v, more: %v", n, closed, moved, more)
		}
		if more := siftAll(l.Sift); len(more) != 0 {
			t.Errorf("closed %v", more)
		}
		if names, _ := l.Counts(); names != n-1 {
			t.Errorf("%d of %d names are left", names, n)
		}
	}
}

// inKernel is what a kernel holds, and until when.
type inKernel map[firewall.Element]time.Time

func (k inKernel) lease(now time.Time, ls []firewall.Lease) {
	for _, l := range ls {
		k[l.Element] = now.Add(l.TTL)
	}
}

func (k inKernel) drop(es []firewall.Element) {
	for _, e := range es {
		delete(k, e)
	}
}

// TestLedgerAndKernelAgree: whatever goes and comes, in whichever order, the kernel holds nothing that is not in the book,
// which would look like somebody else's doing, and all that a name was promised.
func TestLedgerAndKernelAgree(t *testing.T) {
	policies := []string{
		"domains: [a.test:443, b.test:443, '*.w.test:443']\nlimits: {addrs_per_name: 2}",
		"domains: [b.test:443, '*.w.test:443']\nlimits: {addrs_per_name: 2}",
		"domains: [a.test:443, 'b.test:443 direct', 'x.w.test:443']\nlimits: {addrs_per_name: 2}",
		"domains: ['a.test:443 read', b.test:443, '*.w.test:443 read']\nlimits: {addrs_per_name: 2}",
		"domains: []",
	}
	names := []string{"a.test", "b.test", "x.w.test", "y.w.test"}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		l, c := newTestLedger(t, policies[0])
		kernel := inKernel{}
		sift := func() (more bool) {
			closed, moved, more := l.Sift()
			kernel.drop(closed)
			kernel.lease(c.Now, moved)
			return more
		}
		for step := range 200 {
			what := "lease"
			switch r.IntN(12) {
			case 0:
				what = "policy"
				kernel.drop(l.Begin(parsePolicy(t, policies[r.IntN(len(policies))]), policy.Change{}))
			case 1:
				what = "time"
				c.Now = c.Now.Add(time.Duration(r.IntN(40_000)) * time.Millisecond)
				kernel.lease(c.Now, l.Sweep())
			case 2:
				what = "revoked"
				kernel.drop(l.RevokeName(names[r.IntN(len(names))]))
			case 3:
				what = "renewed"
				var all []firewall.Element
				for e := range kernel {
					if r.IntN(2) == 0 {
						all = append(all, e)
					}
				}
				kernel.lease(c.Now, l.Renew(used(all...), time.Minute, 2*time.Minute))
			case 4:
				what = "lost"
				clear(kernel)
				kernel.lease(c.Now, l.Leases())
			case 5:
				what = "used"
				e := tcp(fmt.Sprintf("192.0.2.%d", r.IntN(4)), 443)
				if e.For = firewall.Inspected; r.IntN(2) == 0 {
					e.For = firewall.Agent
				}
				if longer, ok := l.Use(names[r.IntN(len(names))], e, time.Minute); ok && longer.TTL > 0 {
					kernel.lease(c.Now, []firewall.Lease{longer})
				}
			case 6:
				what = "sifted"
				sift()
			case 7:
				what = "asked"
				l.LeasedTo(names[r.IntN(len(names))], tcp("192.0.2.1", 443))
			default:
				name := names[r.IntN(len(names))]
				a := netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(4))})
				open, _ := l.Lease(name, []netip.Addr{a}, time.Duration(1+r.IntN(120))*time.Second)
				switch r.IntN(8) {
				case 0: // it took effect, and nobody knows
					what = "failed half-way"
					kernel.lease(c.Now, open)
					kernel.drop(l.RevokeName(name))
				case 1:
					what = "failed"
					kernel.drop(l.RevokeName(name))
					for _, o := range open { // what was to run out as well
						if !l.Holds(o.Element) {
							kernel.drop([]firewall.Element{o.Element})
						}
					}
				default:
					kernel.lease(c.Now, open)
				}
			}
			for e, until := range kernel {
				if left := until.Sub(c.Now); left <= 0 {
					delete(kernel, e)
				} else if left >= 2*time.Second && !l.Holds(e) {
					t.Fatalf("seed %d, step %d (%s): the kernel has %v for %v, and the book has not", seed, step, what, e, left)
				}
			}
			for name, nl := range l.names {
				for _, o := range nl.leases {
					moving := nl.judged != l.judging.policies || slices.Contains(l.judging.moved, o.Element)
					if left := o.expires - l.now(); !moving && left > time.Second && what != "failed" && kernel[o.Element].Before(c.Now.Add(left-time.Second)) {
						t.Fatalf("seed %d, step %d (%s): %s has %v for %v, and the kernel until %v", seed, step, what, name, o.Element, left, kernel[o.Element].Sub(c.Now))
					}
				}
			}
			if what == "failed" { // what was to be longer for others as well
				kernel.lease(c.Now, l.Leases())
			}
		}
		for sift() {
		}
		for e, until := range kernel {
			if !l.Holds(e) && until.Sub(c.Now) >= 2*time.Second {
				t.Fatalf("seed %d: %v is open, and all was judged", seed, e)
			}
		}
	}
}
