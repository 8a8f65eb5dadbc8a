package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

func TestRecheck(t *testing.T) {
	r := newRig(t, nil)
	gone, goneServer := r.pair("two.test")
	stays, staysServer := r.pair("ok.test")
	// The end of a lease is no reason.
	r.mu.Lock()
	delete(r.leases, "ok.test")
	r.mu.Unlock()
	r.policy.Store(parsePolicy(t, "ok.test", "!two.test"))
	began := time.Now()
	r.Recheck()
	wantReset(t, gone)
	wantReset(t, goneServer)
	if d := time.Since(began); d > waitTime/2 {
		t.Errorf("it took %v", d)
	}
	io.WriteString(stays, "x")
	if _, err := staysServer.Read(make([]byte, 1)); err != nil {
		t.Errorf("another connection noticed: %v", err)
	}
	e := r.event(audit.Connect, 0)
	wantReason(t, e, audit.Deny, "no longer allowed")
	if e.Name != "two.test" {
		t.Errorf("recorded %+v", e)
	}
	r.policy.Store(parsePolicy(t, "ok.test:443", "!192.0.2.0/24"))
	r.Recheck()
	wantReset(t, stays)
	r.event(audit.Connect, 1)
	if n := r.count(audit.Connect, audit.Deny, "no longer allowed"); n != 2 {
		t.Errorf("%d were revoked", n)
	}
}

// TestConnectionsHoldNoPolicy: connections live long, and policies come and go.
func TestConnectionsHoldNoPolicy(t *testing.T) {
	r := switchRig(t)
	old := r.policy.Load()
	var rules []weak.Pointer[policy.Rule]
	for _, rule := range append(old.Names, old.Proxies...) {
		rules = append(rules, weak.Make(rule))
	}
	if len(rules) < 2 {
		t.Fatal("no rules")
	}
	old = nil
	tls, _ := r.pair("ok.test")
	came := r.far()
	tunnel := r.connect(siteWeb)
	io.WriteString(tunnel, askTunnel)
	io.WriteString(<-came, tunnelling)
	reads(t, tunnel, tunnelling)
	r.policy.Store(parsePolicy(t, "ok.test", "proxy.test:80 connect"))
	r.Recheck()
	runtime.GC()
	for i, rule := range rules {
		if rule.Value() != nil {
			t.Errorf("rule %d of the old policy is still in memory", i)
		}
	}
	for _, c := range []*net.TCPConn{tls, tunnel} {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Errorf("a connection is over: %v", err)
		}
	}
}

// TestRecheckWhileConnecting: a name that is revoked between the decision and
// the onward connection is revoked all the same.
func TestRecheckWhileConnecting(t *testing.T) {
	at := make(chan struct{})
	r := newRig(t, func(c *settings) {
		c.dial = func(ctx context.Context, _ netip.AddrPort) (*net.TCPConn, error) {
			close(at)
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	c := r.connect(siteTLS)
	c.Write(helloFor("two.test"))
	<-at
	r.policy.Store(parsePolicy(t, "ok.test"))
	r.Recheck()
	wantReset(t, c)
	wantReason(t, r.event(audit.Connect, 0), audit.Deny, refusedRevoked.Error())
}

// TestRevokedConnectionComesTooLate: an onward connection that is made in spite
// of the revocation carries nothing.
func TestRevokedConnectionComesTooLate(t *testing.T) {
	at, release := make(chan struct{}), make(chan struct{})
	var r *rig
	r = newRig(t, func(c *settings) {
		c.dial = func(_ context.Context, to netip.AddrPort) (*net.TCPConn, error) {
			close(at)
			<-release
			return r.dial(context.Background(), to)
		}
	})
	got := make(chan []byte, 1)
	r.server(siteTLS, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		got <- b
	})
	c := r.connect(siteTLS)
	c.Write(helloFor("two.test"))
	<-at
	r.policy.Store(parsePolicy(t, "ok.test"))
	r.Recheck()
	wantReset(t, c)
	close(release)
	if b := <-got; len(b) != 0 {
		t.Errorf("%d bytes reached the server", len(b))
	}
}

// TestRecheckHTTP: a kept-alive connection counts for what it is used for.
func TestRecheckHTTP(t *testing.T) {
	r := newRig(t, nil)
	answer := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
	r.script(answer, answer, answer, answer, answer)
	c := r.connect(siteWeb)
	ask := func(name string) {
		t.Helper()
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", name)
		if _, err := io.ReadFull(c, make([]byte, len(answer))); err != nil {
			t.Fatal(err)
		}
	}
	ask("two.test")
	ask("ok.test")
	ask("ok.test")
	r.policy.Store(parsePolicy(t, "ok.test"))
	r.Recheck()
	ask("ok.test")
	r.policy.Store(parsePolicy(t, "two.test"))
	r.Recheck()
	wantReset(t, c)
}
