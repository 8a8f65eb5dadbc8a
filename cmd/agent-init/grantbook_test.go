package main

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

func mustPut(t *testing.T, b *grantBook, kind grantKind, target string, life time.Duration) (grant, []grant) {
	t.Helper()
	g, replaced, err := b.put(kind, asker{target: target}, 0, life, noon)
	if err != nil {
		t.Fatal(err)
	}
	return g, replaced
}

func filesOf(b grantBook) (out []string) {
	for _, f := range b.over(&policy.Bundle{Files: []policy.File{{Name: "allowlist.txt"}}}).Files {
		out = append(out, f.Name+" "+strings.TrimSpace(string(f.Data)))
	}
	return out
}

func TestGrantBook(t *testing.T) {
	var b grantBook
	mustPut(t, &b, grantAllow, "a.example", time.Minute)
	mustPut(t, &b, grantDeny, "b.example", 0)
	before := b.clone()
	if _, replaced := mustPut(t, &b, grantDeny, "a.example", time.Hour); len(replaced) != 1 || replaced[0].Number != 1 {
		t.Errorf("replaced %+v", replaced)
	}
	if got, want := filesOf(b), []string{"allowlist.txt ", "grant-2 !b.example", "grant-3 !a.example"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := filesOf(before), []string{"allowlist.txt ", "grant-1 a.example", "grant-2 !b.example"}; !slices.Equal(got, want) {
		t.Errorf("a clone has %q, want %q", got, want)
	}
	// The flags of a target make it no other target.
	if _, replaced := mustPut(t, &b, grantAllow, "a.example private", time.Hour); len(replaced) != 1 || replaced[0].Number != 3 {
		t.Errorf("replaced %+v", replaced)
	}
	if over := b.expire(noon.Add(time.Hour - 1)); len(over) != 0 {
		t.Errorf("%+v are over too early", over)
	}
	if over := b.expire(noon.Add(time.Hour)); len(over) != 1 || over[0].Number != 4 || len(b.list) != 1 {
		t.Errorf("%+v are over, %+v is left", over, b.list)
	}
	if over := b.expire(noon.Add(1000 * time.Hour)); len(over) != 0 {
		t.Errorf("%+v ended by themselves", over)
	}
	if _, err := b.end(4, decision{}); err == nil {
		t.Error("what is over can be ended")
	}
	if g, err := b.end(2, decision{}); err != nil || g.Target != "b.example" || len(b.list) != 0 {
		t.Errorf("ended %+v, %v", g, err)
	}
	if g, _ := mustPut(t, &b, grantAllow, "c.example", time.Minute); g.Number != 5 {
		t.Errorf("number %d is used twice", g.Number)
	}
}

func TestGrantBookIsBounded(t *testing.T) {
	var b grantBook
	for i := range maxGrants {
		mustPut(t, &b, grantAllow, fmt.Sprintf("n%d.example", i), time.Minute)
	}
	if _, _, err := b.put(grantAllow, asker{target: "one.more.example"}, 0, time.Minute, noon); err == nil {
		t.Error("no bound")
	}
	// What replaces another one takes its place.
	mustPut(t, &b, grantDeny, "n7.example", 0)
}

func TestRequests(t *testing.T) {
	var b grantBook
	for i := range 3 {
		g, isNew, err := b.request(asker{target: "a.example", uid: 1000}, noon)
		if err != nil || g.Number != 1 || g.Asked != i+1 || isNew != (i == 0) {
			t.Errorf("request %d: %+v, %v, %v", i, g, isNew, err)
		}
	}
	if got := filesOf(b); len(got) != 1 {
		t.Errorf("a request is in force: %q", got)
	}
	for i := range maxRequests - 1 {
		if _, _, err := b.request(asker{target: fmt.Sprintf("n%d.example", i)}, noon); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := b.request(asker{target: "one.more.example"}, noon); !errors.Is(err, errTooManyRequests) {
		t.Errorf("no bound: %v", err)
	}
	// They take no place of a person's.
	mustPut(t, &b, grantAllow, "x.example", time.Minute)
	if _, _, err := b.put(grantAllow, asker{target: "b.example"}, 1, time.Minute, noon); err == nil {
		t.Error("request 1 was granted as something else")
	}
	if _, _, err := b.put(grantAllow, asker{target: "a.example"}, 99, time.Minute, noon); err == nil {
		t.Error("a request that nobody made was granted")
	}
	g, _, err := b.put(grantAllow, asker{target: "a.example"}, 1, time.Minute, noon)
	if err != nil || g.Number != 1 || g.Kind != grantAllow {
		t.Errorf("got %+v, %v", g, err)
	}
	if over := b.expire(noon.Add(requestLife)); len(over) != maxRequests+1 {
		t.Errorf("%d are over, %d are left", len(over), len(b.list))
	}
}

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
		var book grantBook
		files := &policy.Bundle{}
		l := newLedger(parsePolicy(t, ""), newTestEdition())
		l.now = func() time.Time { return now }
		kernel := map[firewall.Element]time.Time{} // what is open, until when
		lease := func(leases []firewall.Lease) {
			for _, o := range leases {
				kernel[o.Element] = now.Add(o.TTL)
			}
		}
		for step := range 120 {
			switch r.IntN(8) {
			case 0, 1:
				kind, life, target := grantAllow, time.Duration(1+r.IntN(30))*time.Second, targets[r.IntN(len(targets))]
				if r.IntN(3) == 0 {
					kind, target = grantDeny, place(target)
				}
				if _, _, err := book.put(kind, asker{target: target}, 0, life, now); err != nil {
					t.Fatal(err)
				}
			case 2:
				book.expire(now)
			case 3:
				if len(book.list) > 0 {
					if _, err := book.end(book.list[r.IntN(len(book.list))].Number, decision{}); err != nil {
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
						lines = append(lines, "!"+place(target))
					}
				}
				files = &policy.Bundle{Files: []policy.File{{Name: "allowlist.txt", Data: []byte(strings.Join(lines, "\n"))}}}
			case 5:
				open, _ := l.grant(names[r.IntN(len(names))], []netip.Addr{pool[r.IntN(len(pool))]}, time.Duration(1+r.IntN(60))*time.Second)
				lease(open)
				continue
			case 6: // connections go on
				lease(l.renew(used(slices.Collect(maps.Keys(kernel))...), time.Hour, time.Minute))
				continue
			case 7: // another kernel, or its rules made anew
				l.sweep()
				clear(kernel)
				lease(l.leases())
				continue
			}
			now = now.Add(time.Duration(r.IntN(10)) * time.Second)
			p, err := policy.Parse(book.over(files), presets())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range l.adopt(p) {
				delete(kernel, e)
			}
			for e, until := range kernel {
				if now.After(until) {
					continue
				}
				if !l.holds(e) {
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

func TestPace(t *testing.T) {
	p := &wire.Pace{Burst: 3, Every: time.Second}
	now, passed := noon, 0
	for range 10 {
		if p.Take(now) {
			passed++
		}
	}
	if passed != 3 {
		t.Errorf("%d of 10 passed at once", passed)
	}
	passed = 0
	for range 100 {
		now = now.Add(100 * time.Millisecond)
		if p.Take(now) {
			passed++
		}
	}
	if passed < 9 || passed > 11 {
		t.Errorf("%d passed in 10 s", passed)
	}
}

// TestCheckRequest: the keeper takes from the guard only what can be shown to a
// person as it is.
func TestCheckRequest(t *testing.T) {
	for _, m := range []wire.Message{{Name: ""}, {Name: "a\nb"}, {Name: "é.example"}, {Name: "a.example # x"}, {Name: "!a.example"}, {Name: "A.example"},
		{Name: "a.example", Text: "\x1b[2J"}, {Name: "a.example", Text: "é"}} {
		if checkRequest(m) == nil {
			t.Errorf("%+v is taken", m)
		}
	}
	if err := checkRequest(wire.Message{Name: "[2001:db8::1]:53/udp private", Text: "why not?"}); err != nil {
		t.Error(err)
	}
}

func FuzzPlainText(f *testing.F) {
	f.Add("why\x1b[2J")
	f.Add(strings.Repeat("é", 300))
	f.Fuzz(func(t *testing.T, s string) {
		got := plainText(s)
		if len(got) > wire.MaxText || checkRequest(wire.Message{Name: "a.example", Text: got}) != nil {
			t.Errorf("%q becomes %q", s, got)
		}
	})
}
