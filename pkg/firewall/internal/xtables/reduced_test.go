package xtables

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// TestXTReducedGolden: what iptables is told of a reduced plan. It must not hold
// what gVisor doesn't know.
func TestXTReducedGolden(t *testing.T) {
	c := fullReduced()
	c.Inbound = []plan.Entry{{Proto: 6, Port: 3000}}
	p, err := plan.New(c)
	must(t, err)
	got := xtText(t, p)
	golden(t, "xt/reduced", got)
	for _, word := range []string{"conntrack", "-m set", "comment", "limit", "NFLOG", "addrtype", "prohib", "icmp-type", "*mangle", "socket-exists", "-f "} {
		if strings.Contains(got, word) {
			t.Errorf("gVisor does not know %q", word)
		}
	}
}

func TestTellsHiddenOwner(t *testing.T) {
	given := []string{"-p tcp -m owner --uid-owner 990 -j ACCEPT", "-d ::6464:64c8/128 -j DROP"}
	for _, tt := range []struct {
		read []string
		ok   bool
	}{
		{[]string{"-p tcp -m owner --uid-owner 990 -j ACCEPT", "-d ::100.100.100.200/128 -j DROP"}, true},
		{[]string{"-p tcp -m owner [unsupported revision] -j ACCEPT", "-d ::6464:64c8/128 -j DROP"}, true},
		{[]string{"-p tcp -m owner --uid-owner 1000 -j ACCEPT", "-d ::6464:64c8/128 -j DROP"}, false},
		{[]string{"-p tcp -j ACCEPT", "-d ::6464:64c8/128 -j DROP"}, false}, // the match was taken and forgotten
		{[]string{"-p udp -m owner [unsupported revision] -j ACCEPT", "-d ::6464:64c8/128 -j DROP"}, false},
		{[]string{"-p tcp -m owner [unsupported revision] -j ACCEPT", "-d ::6464:64c9/128 -j DROP"}, false},
	} {
		if err := tells(given, tt.read); (err == nil) != tt.ok {
			t.Errorf("%q: %v", tt.read, err)
		}
	}
}

// Counters move by themselves; all else of a rule counts.
func TestWithoutCounters(t *testing.T) {
	for f, at := range map[plan.Family]struct{ next, counters int }{plan.IPv4: {90, 96}, plan.IPv6: {142, 152}} {
		rule := func(uid uint32, packets uint64) []byte {
			b := make([]byte, 200)
			binary.NativeEndian.PutUint16(b[at.next:], uint16(len(b)))
			binary.NativeEndian.PutUint64(b[at.counters:], packets)
			binary.NativeEndian.PutUint64(b[at.counters+8:], 100*packets)
			binary.NativeEndian.PutUint32(b[190:], uid)
			return b
		}
		table := func(uid uint32, packets uint64) string {
			s, err := withoutCounters(f, bytes.Join([][]byte{rule(7, packets), rule(uid, 2*packets)}, nil))
			must(t, err)
			return s
		}
		if table(1, 0) != table(1, 5) {
			t.Errorf("IPv%d: counters count", f)
		}
		if table(1, 0) == table(2, 0) {
			t.Errorf("IPv%d: another uid looks the same", f)
		}
		for _, bad := range [][]byte{rule(1, 0)[:100], make([]byte, 200)} {
			if _, err := withoutCounters(f, bad); err == nil {
				t.Errorf("IPv%d: nonsense was read", f)
			}
		}
	}
}

// The book stands in for sets: what is leased ends by itself.
func TestReducedLeases(t *testing.T) {
	r := &reducedXT{book: map[plan.Element]time.Time{}}
	a, b := plan.Element{Addr: plan.EngineDNS(), Proto: 6, Port: 443}, plan.Element{Addr: plan.EngineDNS(), Proto: 6, Port: 80}
	must(t, r.Lease([]plan.Lease{{Element: a, TTL: time.Hour}, {Element: b, TTL: time.Hour}}))
	r.book[b] = time.Now().Add(-time.Second)
	held := func() (ls []plan.Lease) {
		must(t, r.Held(plan.IPv4.Leases(plan.Agent), func(l plan.Lease) { ls = append(ls, l) }))
		return ls
	}
	if ls := held(); len(ls) != 1 || ls[0].Element != a || ls[0].TTL <= 0 {
		t.Errorf("%v", ls)
	}
	must(t, r.Lease(nil))
	if len(r.book) != 1 {
		t.Errorf("what has ended stays in the book: %v", r.book)
	}
	must(t, r.Unlease([]plan.Element{a, b}))
	if ls := held(); len(ls) != 0 {
		t.Errorf("%v", ls)
	}
	if err := r.Apply(plan.Plan{}, plan.Plan{}); err == nil {
		t.Error("a plan that is not reduced was taken")
	}
}
