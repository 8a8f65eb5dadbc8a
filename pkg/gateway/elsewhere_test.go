package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/race"
	"github.com/agent-init/agent-init/pkg/audit"
)

var (
	other  = netip.MustParseAddr("192.0.2.2")
	other6 = netip.MustParseAddr("2001:db8::2")
)

// leases are what names have beside the site, and what was dialled.
type leases struct {
	mu      sync.Mutex
	beside  map[string][]netip.Addr
	dialled []netip.Addr
	silent  []netip.Addr
}

func (l *leases) rig(t *testing.T) *rig {
	return newRig(t, l.set)
}

func (l *leases) set(c *settings) {
	c.LeasedTo = func(_ context.Context, name string, a netip.AddrPort) (bool, error) {
		return a.Addr() == site || slices.Contains(l.beside[name], a.Addr()), nil
	}
	c.Beside = func(_ context.Context, name string, a netip.AddrPort) ([]netip.Addr, error) {
		return l.beside[name], nil
	}
	c.dial = func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
		l.mu.Lock()
		l.dialled = append(l.dialled, to.Addr())
		l.mu.Unlock()
		if slices.Contains(l.silent, to.Addr()) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return c.rig.dial(ctx, to)
	}
}

// TestGoesElsewhere: where the address that the client chose does not answer, another one of that name does, and of no
// other name. What was said so far goes there, and the log says where.
func TestGoesElsewhere(t *testing.T) {
	for _, tt := range []struct {
		what   string
		silent bool
		name   string
		beside map[string][]netip.Addr
		works  netip.Addr
	}{
		{"refused", false, "ok.test", map[string][]netip.Addr{"ok.test": {other}}, other},
		{"silent", true, "ok.test", map[string][]netip.Addr{"ok.test": {other}}, other},
		{"of another family", true, "ok.test", map[string][]netip.Addr{"ok.test": {other6}}, other6},
		{"of another name", false, "two.test", map[string][]netip.Addr{"ok.test": {other}}, netip.Addr{}},
		{"where no name may lead", false, "ok.test", map[string][]netip.Addr{"ok.test": {netip.MustParseAddr("169.254.169.254")}}, netip.Addr{}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			l := &leases{beside: tt.beside}
			if tt.silent {
				l.silent = []netip.Addr{site}
			}
			r := l.rig(t)
			behind := listen(t)
			for _, a := range []string{"192.0.2.2", "2001:db8::2", "169.254.169.254"} {
				r.behind(netip.AddrPortFrom(netip.MustParseAddr(a), 443), behind)
			}
			hello := helloOf(t, tt.name)
			serve(behind, func(c *net.TCPConn) {
				if _, err := io.CopyN(io.Discard, c, int64(len(hello))); err == nil {
					greeter(c)
				}
			})
			if !tt.works.IsValid() {
				r.refused(siteTLS, hello)
				if e := r.event(audit.Connect, 0); !slices.Equal(l.dialled, []netip.Addr{site}) || e.IP != site.String() {
					t.Errorf("dialled %v, recorded %+v", l.dialled, e)
				}
				return
			}
			c := r.connect(siteTLS)
			fmt.Fprint(c, hello)
			passes(t, c)
			c.Close()
			e := r.event(audit.Connect, 0)
			if e.IP != tt.works.String() || e.Verdict != audit.Allow || !strings.HasSuffix(e.Reason, "; 192.0.2.1 did not answer") {
				t.Errorf("recorded %+v", e)
			}
		})
	}
}

// TestElsewhereCounts: a later request, and a later policy, are held against the address that is connected to.
func TestElsewhereCounts(t *testing.T) {
	l := &leases{beside: map[string][]netip.Addr{"ok.test": {other}}}
	r := l.rig(t)
	behind := listen(t)
	r.behind(netip.AddrPortFrom(other, 80), behind)
	go http.Serve(behind, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { fmt.Fprint(w, q.Host) }))
	ask := func(c net.Conn, in *bufio.Reader, name string) int {
		t.Helper()
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", name)
		a, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, a.Body)
		return a.StatusCode
	}
	c := r.connect(siteWeb)
	in := bufio.NewReader(c)
	for _, want := range []struct {
		name   string
		status int
	}{{"ok.test", 200}, {"ok.test", 200}, {"two.test", 403}} { // which is leased the first address alone
		if got := ask(c, in, want.name); got != want.status {
			t.Errorf("%s: %d, want %d", want.name, got, want.status)
		}
	}
	wantReason(t, r.event(audit.HTTP, 2), audit.Deny, "GET: "+refusedLease.Error())

	c = r.connect(siteWeb)
	if got := ask(c, bufio.NewReader(c), "ok.test"); got != 200 {
		t.Fatal(got)
	}
	r.policy.Store(parsePolicy(t, "ok.test", "!192.0.2.1"))
	r.Recheck()
	if got := ask(c, bufio.NewReader(c), "ok.test"); got != 200 {
		t.Errorf("an address that nothing is connected to is denied: %d", got)
	}
	r.policy.Store(parsePolicy(t, "ok.test", "!192.0.2.2"))
	r.Recheck()
	wantReset(t, c)
	wantReason(t, r.event(audit.Connect, 1), audit.Deny, refusedRevoked.Error())
}

// TestElsewhereTooLate: a policy that comes while another address is tried counts for that address.
func TestElsewhereTooLate(t *testing.T) {
	l := &leases{beside: map[string][]netip.Addr{"ok.test": {other}}}
	r := newRig(t, func(c *settings) {
		r := c.rig
		c.Beside = func(context.Context, string, netip.AddrPort) ([]netip.Addr, error) { return l.beside["ok.test"], nil }
		c.dial = func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
			if to.Addr() == other {
				r.policy.Store(parsePolicy(t, "ok.test", "!192.0.2.2"))
				r.Recheck()
			}
			return r.dial(ctx, to)
		}
	})
	got := make(chan int64, 1)
	l2 := listen(t)
	r.behind(netip.AddrPortFrom(other, 443), l2)
	serve(l2, func(c *net.TCPConn) {
		n, _ := io.Copy(io.Discard, c)
		got <- n
	})
	r.refused(siteTLS, helloOf(t, "ok.test"))
	wantReason(t, r.event(audit.Connect, 0), audit.Deny, refusedRevoked.Error())
	select {
	case n := <-got:
		if n != 0 {
			t.Errorf("%d bytes went to a denied address", n)
		}
	case <-time.After(waitTime):
		t.Error("the server's side does not end")
	}
}

// TestElsewhereIsBounded: whatever the agent asks for, a bounded number of attempts is under way beside the first ones.
func TestElsewhereIsBounded(t *testing.T) {
	l := &leases{beside: map[string][]netip.Addr{"ok.test": {}}, silent: []netip.Addr{site}}
	for i := range 30 {
		a := netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i)})
		l.beside["ok.test"], l.silent = append(l.beside["ok.test"], a), append(l.silent, a)
	}
	room := make(race.Room, 3)
	r := newRig(t, func(c *settings) {
		l.set(c)
		c.room = room
	})
	for range 8 {
		c := r.connect(siteTLS)
		fmt.Fprint(c, helloOf(t, "ok.test"))
	}
	for len(room) < 3 {
		time.Sleep(time.Millisecond)
	}
	r.stop()
	if len(room) != 0 {
		t.Error("attempts are left")
	}
}
