package main

import (
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/wire"
)

// TestEdition: the guard sees at once what the keeper writes, and can neither
// write it nor cut it off.
func TestEdition(t *testing.T) {
	ours, err := wire.NewEdition()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.File.Close()
	fd, err := unix.Dup(int(ours.File.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "theirs")
	if err := f.Truncate(0); err == nil {
		t.Fatal("the memory can be cut off")
	}
	theirs, err := wire.OpenEdition(f)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		ours.Add(1)
		if got, want := theirs.Load(), ours.Load(); got != want || got == 0 {
			t.Errorf("the guard reads %d, the keeper wrote %d", got, want)
		}
	}
	if _, err := wire.OpenEdition(mustTemp(t)); err == nil {
		t.Error("an empty file is taken for memory")
	}
}

// mustTemp returns a descriptor that can't be mapped.
func mustTemp(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestKnown(t *testing.T) {
	c := &clock{now: noon}
	k := newKnown(newTestEdition())
	k.now = func() time.Time { return c.now }
	a, b := netip.MustParseAddrPort("192.0.2.1:443"), netip.MustParseAddrPort("192.0.2.1:80")
	want := func(name string, addr netip.AddrPort, holds bool) {
		t.Helper()
		if got := k.holds(name, addr); got != holds {
			t.Errorf("%s at %s: %v, want %v", name, addr, got, holds)
		}
	}
	k.note("a.example", a, 0, noon.Add(time.Minute))
	want("a.example", a, true)
	want("a.example", b, false)
	want("b.example", a, false)

	c.now = noon.Add(time.Minute)
	want("a.example", a, false) // over
	k.note("a.example", a, 0, noon.Add(2*time.Minute))
	want("a.example", a, true)
	k.edition.Add(1)
	want("a.example", a, false) // something was struck out
	k.note("a.example", a, 0, noon.Add(2*time.Minute))
	want("a.example", a, false) // an answer from before that
	k.note("a.example", a, 1, noon.Add(2*time.Minute))
	want("a.example", a, true)
	k.note("b.example", a, 1, c.now)
	want("b.example", a, false) // over before it came

	for i := range 3 * maxKnown {
		k.note(fmt.Sprint(i), a, 1, noon.Add(time.Hour))
	}
	if n := len(k.leases); n > maxKnown {
		t.Errorf("%d leases are remembered", n)
	}
	want(fmt.Sprint(3*maxKnown-1), a, true)
}

// TestEditionOfLedger: whatever ends a lease before its time makes a new
// edition, and nothing else does.
func TestEditionOfLedger(t *testing.T) {
	l, c := newTestLedger(t, "domains: [a.example, b.example]\nlimits: {addrs_per_name: 2}\n")
	was := l.edition.Load()
	changed := func(what string, want bool) {
		t.Helper()
		if got := l.edition.Load(); (got != was) != want {
			t.Errorf("%s: edition %d after %d", what, got, was)
		}
		was = l.edition.Load()
	}
	left := func(name, addr string, want time.Duration) {
		t.Helper()
		got, edition := l.leasedTo(name, tcp(addr, 443))
		if got != want || edition != was {
			t.Errorf("%s at %s: %v left in edition %d, want %v in %d", name, addr, got, edition, want, was)
		}
	}
	l.grant("a.example", addrs("192.0.2.1", "192.0.2.2"), time.Minute)
	changed("a lease", false)
	left("a.example", "192.0.2.1", time.Minute)
	left("b.example", "192.0.2.1", 0)
	c.now = c.now.Add(time.Second)
	l.grant("a.example", addrs("192.0.2.1"), 10*time.Second)
	changed("a shorter lease", false)
	left("a.example", "192.0.2.1", 59*time.Second) // is no shorter
	l.grant("a.example", addrs("192.0.2.2"), time.Hour)
	changed("a longer lease", false)
	left("a.example", "192.0.2.2", maxLease)
	l.renew(used(tcp("192.0.2.1", 443)), time.Hour, 2*time.Minute)
	changed("renewal", false)
	left("a.example", "192.0.2.1", 2*time.Minute)
	l.grant("a.example", addrs("192.0.2.3"), time.Minute)
	changed("one address too many", true)
	left("a.example", "192.0.2.1", 0)
	c.now = c.now.Add(time.Minute)
	left("a.example", "192.0.2.3", 0)
	l.sweep()
	changed("the end of a lease", false)
	l.grant("b.example", addrs("192.0.2.1"), time.Minute)
	l.revokeName("b.example")
	changed("a name that is closed", true)
	l.adopt(parsePolicy(t, "domains: [a.example]"))
	changed("a policy", true)
}
