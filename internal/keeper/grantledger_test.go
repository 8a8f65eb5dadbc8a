package keeper

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

// TestGrantsNeverLeaveADeniedLease: whatever is granted, denied, ended and
// reloaded in whichever order, the book of leases holds only what the policy
// of that moment admits, over renewals, rules that are made anew, and time.
func TestGrantsNeverLeaveADeniedLease(t *testing.T) {
	names := []string{"a.example.com", "b.example.com", "x.cdn.example.net", "y.cdn.example.net"}
	targets := append([]string{"*.cdn.example.net", "*.example.com:8443", "10.0.0.0/8:443", "198.51.100.0/24", "192.0.2.2", "2001:db8::/32", "a.example.com:22", "b.example.com private"}, names...)
	pool := addrs("192.0.2.1", "192.0.2.2", "198.51.100.1", "10.0.0.1", "2001:db8::1")
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		now := noon
		var book grant.Book
		files := &policy.Bundle{}
		l := lease.New(parsePolicy(t, ""), &wire.Edition{Uint64: new(atomic.Uint64)})
		l.Now = func() time.Time { return now }
		kernel := map[firewall.Element]time.Time{} // what is open, until when
		lease := func(leases []firewall.Lease) {
			for _, o := range leases {
				kernel[o.Element] = now.Add(o.TTL)
			}
		}
		for step := range 120 {
			switch r.IntN(8) {
			case 0, 1:
				kind, life, target := grant.Allow, time.Duration(1+r.IntN(30))*time.Second, targets[r.IntN(len(targets))]
				if r.IntN(3) == 0 {
					kind, target = grant.Deny, grant.Place(target)
				}
				if _, _, err := book.Put(grant.Grant{Kind: kind, Target: target}, life, now); err != nil {
					t.Fatal(err)
				}
			case 2:
				book.Expire(now)
			case 3:
				if len(book.List) > 0 {
					if _, err := book.End(book.List[r.IntN(len(book.List))].Number, grant.Decision{}); err != nil {
						t.Fatal(err)
					}
				}
			case 4:
				var lines []string
				for _, target := range targets {
					switch r.IntN(4) {
					case 0:
						lines = append(lines, target)
					case 1:
						lines = append(lines, "!"+grant.Place(target))
					}
				}
				files = &policy.Bundle{Files: []policy.File{{Name: "allowlist.txt", Data: []byte(strings.Join(lines, "\n"))}}}
			case 5:
				open, _ := l.Lease(names[r.IntN(len(names))], []netip.Addr{pool[r.IntN(len(pool))]}, time.Duration(1+r.IntN(60))*time.Second)
				lease(open)
				continue
			case 6: // connections go on
				used := map[firewall.Element]bool{}
				for e := range kernel {
					used[e] = true
				}
				lease(l.Renew(used, time.Hour, time.Minute))
				continue
			case 7: // another kernel, or its rules made anew
				l.Sweep()
				clear(kernel)
				lease(l.Leases())
				continue
			}
			now = now.Add(time.Duration(r.IntN(10)) * time.Second)
			p, err := policy.Parse(book.Over(files), allowlist.Files)
			if err != nil {
				t.Fatal(err)
			}
			closed := l.Begin(p, policy.Change{})
			for more := true; more; {
				var some []firewall.Element
				var moved []firewall.Lease
				some, moved, more = l.Sift()
				closed = append(closed, some...)
				lease(moved)
			}
			for _, e := range closed {
				delete(kernel, e)
			}
			for e, until := range kernel {
				if now.After(until) {
					continue
				}
				if !l.Holds(e) {
					t.Fatalf("seed %d, step %d: %v is open, and not in the book: nothing would close it", seed, step, e)
				}
				if !slices.ContainsFunc(names, func(name string) bool {
					return p.Lookup(name).Allowed && slices.Contains(p.Admit(name, e.Addr), policy.Port{Proto: policy.Proto(e.Proto), Number: e.Port})
				}) {
					t.Fatalf("seed %d, step %d: %v is open, and no name may have it", seed, step, e)
				}
			}
		}
	}
}
