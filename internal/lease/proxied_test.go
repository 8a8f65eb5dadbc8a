package lease

import (
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/firewall"
)

const proxiedPolicy = `{upstream_proxy: {to: "http://proxy.corp.example:3128", straight: [near.example]}, domains: [a.example, near.example]}`

// TestProxied: what goes by the upstream proxy is leased so that nobody goes there, and a policy without it changes that.
func TestProxied(t *testing.T) {
	l, _ := newTestLedger(t, proxiedPolicy)
	holders := func(name, addr string) (all []firewall.Holder) {
		for _, o := range func() []firewall.Lease { open, _ := l.Lease(name, addrs(addr), time.Minute); return open }() {
			all = append(all, o.For)
		}
		return all
	}
	for name, want := range map[string]firewall.Holder{"a.example": firewall.Inspected, "near.example": firewall.Gated} {
		if got := holders(name, "192.0.2.1"); len(got) != 2 || got[0] != want || got[1] != want {
			t.Errorf("%s is leased to %v, want %v", name, got, want)
		}
	}
	closed := l.Adopt(parsePolicy(t, `domains: [a.example]`))
	for _, e := range closed {
		if e.For != firewall.Inspected && e.For != firewall.Gated {
			t.Errorf("closed %v", e)
		}
	}
	if got := holders("a.example", "192.0.2.1"); len(got) != 2 || got[0] != firewall.Gated {
		t.Errorf("without a proxy, a.example is leased to %v", got)
	}
}

// TestUse: a connection that the kernel does not see keeps the lease of just its name, and no longer than a day.
func TestUse(t *testing.T) {
	l, c := newTestLedger(t, proxiedPolicy)
	e := tcp("192.0.2.1", 443)
	e.For = firewall.Inspected
	if _, ok := l.Use("a.example", e, time.Hour); ok {
		t.Error("what nobody has leased is in use")
	}
	l.Lease("a.example", addrs("192.0.2.1"), time.Minute)
	gated := e
	gated.For = firewall.Gated
	for what, ok := range map[string]bool{
		"another name":    func() bool { _, ok := l.Use("near.example", e, time.Hour); return ok }(),
		"another holder":  func() bool { _, ok := l.Use("a.example", gated, time.Hour); return ok }(),
		"another address": func() bool { o := e; o.Addr = o.Addr.Next(); _, ok := l.Use("a.example", o, time.Hour); return ok }(),
	} {
		if ok {
			t.Errorf("%s is in use", what)
		}
	}
	if longer, ok := l.Use("a.example", e, time.Hour); !ok || longer.TTL != time.Hour || longer.Element != e {
		t.Errorf("in use: %v, %v", longer, ok)
	}
	if longer, ok := l.Use("a.example", e, time.Hour); !ok || longer.TTL != 0 {
		t.Errorf("again at once: %v, %v", longer, ok)
	}
	for range 48 {
		c.Now = c.Now.Add(50 * time.Minute)
		l.Use("a.example", e, time.Hour)
	}
	if _, ok := l.Use("a.example", e, time.Hour); ok {
		t.Error("a day after an answer, it is still leased")
	}
}
