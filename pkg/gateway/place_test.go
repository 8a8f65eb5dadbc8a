package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/audit"
)

// ownRig is a rig whose site is its own address: where names are, it has to find out.
func ownRig(t *testing.T, found map[string][]netip.Addr) *rig {
	return newRig(t, func(s *settings) {
		s.Own = []netip.Addr{site}
		s.LeasedTo = func(context.Context, string, netip.AddrPort) (bool, error) {
			return false, errors.New("asked for a lease of its own address")
		}
		s.Locate = func(_ context.Context, name string) ([]netip.Addr, error) {
			if len(found[name]) == 0 {
				return nil, errors.New("no such name")
			}
			return found[name], nil
		}
	})
}

// TestPlace: the name inside alone says where a connection to the gate's own address goes on to, and the next address is
// tried if one does not answer.
func TestPlace(t *testing.T) {
	dead, alive := netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.2")
	r := ownRig(t, map[string][]netip.Addr{"ok.test": {site, dead, alive}, "evil.test": {alive}, "two.test": {netip.MustParseAddr("169.254.169.254")}})
	l := listen(t)
	r.behind(netip.AddrPortFrom(alive, 443), l)
	hello := helloOf(t, "ok.test")
	serve(l, func(c *net.TCPConn) {
		if _, err := io.CopyN(io.Discard, c, int64(len(hello))); err == nil {
			greeter(c)
		}
	})
	c := r.connect(siteTLS)
	fmt.Fprint(c, hello)
	passes(t, c)
	c.Close()
	if e := r.event(audit.Connect, 0); e.IP != alive.String() || e.Name != "ok.test" || e.Verdict != audit.Allow {
		t.Errorf("recorded: %+v", e)
	}
	for i, refused := range []struct{ name, reason string }{
		{"evil.test", "not in the allowlist"}, {"two.test", refusedNowhere.Error()}, {"tls.test", refusedNowhere.Error()},
	} {
		before := r.dials()
		r.denied(siteTLS, helloOf(t, refused.name))
		if e := r.event(audit.Connect, i+1); e.Verdict != audit.Deny || !strings.HasPrefix(e.Reason, refused.reason) {
			t.Errorf("%s: recorded %+v, want %q", refused.name, e, refused.reason)
		}
		if r.dials() != before {
			t.Errorf("%s: was connected to", refused.name)
		}
	}
}

// TestPlaceIsJudged: a connection is held against the address that it has gone on to by each policy that comes.
func TestPlaceIsJudged(t *testing.T) {
	alive := netip.MustParseAddr("198.51.100.2")
	for next, stays := range map[string]bool{"ok.test": true, "ok.test !198.51.100.2": false, "other.test": false, "ok.test !198.51.100.3": true} {
		r := ownRig(t, map[string][]netip.Addr{"ok.test": {alive}})
		l := listen(t)
		r.behind(netip.AddrPortFrom(alive, 443), l)
		hello := helloOf(t, "ok.test")
		serve(l, func(c *net.TCPConn) {
			if _, err := io.CopyN(io.Discard, c, int64(len(hello))); err == nil {
				c.Write(records(append([]byte{2, 0, 0, 80, 3, 3}, make([]byte, 80)...), 1<<14)) // as a ServerHello begins
				io.Copy(c, c)
			}
		})
		c := r.connect(siteTLS)
		fmt.Fprint(c, hello)
		if _, err := io.ReadFull(c, make([]byte, 5+86)); err != nil {
			t.Fatal(err)
		}
		r.policy.Store(parsePolicy(t, strings.Fields(next)...))
		r.Recheck()
		fmt.Fprint(c, "pong")
		if _, err := io.ReadFull(c, make([]byte, 4)); (err == nil) != stays {
			t.Errorf("%q: %v", next, err)
		}
	}
}

// TestPlaceSecondName: a connection that goes on somewhere is not of use for a name that is not there.
func TestPlaceSecondName(t *testing.T) {
	alive := netip.MustParseAddr("198.51.100.2")
	r := ownRig(t, map[string][]netip.Addr{"ok.test": {alive}, "two.test": {alive}})
	l := listen(t)
	r.behind(netip.AddrPortFrom(alive, 80), l)
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { fmt.Fprint(w, q.Host) }))
	c := r.connect(siteWeb)
	in := bufio.NewReader(c)
	for _, name := range []string{"ok.test", "two.test"} {
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", name)
		a, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if ok := a.StatusCode == http.StatusOK; ok != (name == "ok.test") {
			t.Errorf("%s: %s", name, a.Status)
		}
		if name == "ok.test" {
			if _, err := in.Discard(int(a.ContentLength)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func helloOf(t *testing.T, name string) string {
	return string(clientHello(t, &tls.Config{ServerName: name}))
}
