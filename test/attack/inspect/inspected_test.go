package inspect

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// inspected confines a box whose policy has api.test inspected.
func inspected(t *testing.T, more ...string) *rig.Brokered {
	t.Helper()
	w := rig.LookedInto(t, "ok.test\napi.test GET /open/**\n"+strings.Join(more, "\n")+"\n", lab.BoxOptions{})
	return &rig.Brokered{World: w}
}

// asked are the requests that have reached api.test.
func asked(b *rig.Brokered) (all []string) {
	for _, r := range b.Lab.Web.Requests("api.test") {
		all = append(all, r.Method+" "+r.URI)
	}
	return all
}

var _ = rig.Also(TestInspected, rig.Everywhere)

// TestInspected: of an inspected name, only the requests arrive that a rule allows, over HTTP/1.1 and HTTP/2, and only
// by way of the broker.
func TestInspected(t *testing.T) {
	b := inspected(t)
	for _, flags := range [][]string{nil, {"-h1"}} {
		if p := b.Get("/open/x", flags...); !p.OK || rig.StatusOf(p) != "200" {
			t.Fatalf("what a rule allows: %s\n%s", p, b.Agent.Stderr())
		}
		for _, refused := range [][]string{{"/closed"}, {"/open/x", "-method", "POST"}, {"/open/../closed"}, {"/open/x", "-header", "X-HTTP-Method-Override: POST"}} {
			if p := b.Get(refused[0], append(refused[1:], flags...)...); rig.StatusOf(p) == "200" {
				t.Errorf("%v: %s", refused, p)
			}
		}
	}
	if got := asked(b); !slices.Equal(got, []string{"GET /open/x", "GET /open/x"}) {
		t.Errorf("api.test was asked %q", got)
	}
	// Whoever trusts the internet's authorities alone sees that it is not the name's own server.
	b.Blocked("http", "-ca", rig.Bundle, "https://api.test/open/x")
	b.Blocked("http", "-insecure", "-sni", "other.test", "https://api.test/open/x")
	if p := b.Get("/open/x", "-host", "other.test"); rig.StatusOf(p) != "421" {
		t.Errorf("another host inside: %s", p)
	}
	if r := b.Root("cat", "/run/agent-init/selftest.json"); !strings.Contains(r.Stdout, `"api.test"`) {
		t.Errorf("the self-test does not ask api.test: %s", r)
	}
	b.Audited("the connection", func(e rig.Event) bool {
		return e.Kind == "connect" && e.Name == "api.test" && e.Reason == "inspected by the broker"
	})
	b.Audited("the refusal", func(e rig.Event) bool { return e.Kind == "broker" && e.Name == "api.test" && e.Verdict == "deny" })
}

var _ = rig.Also(TestInspectedWaits, rig.Everywhere)

// TestInspectedWaits: a connection that is made while there is no broker waits for the next one. Nothing of it goes
// another way, and the same holds for the guard.
func TestInspectedWaits(t *testing.T) {
	b := inspected(t)
	if p := b.Get("/open/first"); !p.OK {
		t.Fatalf("%s\n%s", p, b.Agent.Stderr())
	}
	p := b.Process()
	p.Stop(t) // it takes nothing over, and is ended after a while
	waits := make(chan lab.Poke)
	go func() { waits <- b.Get("/open/waits", "-insecure") }() // the next broker has another authority
	time.Sleep(time.Second)
	p.Signal(t, unix.SIGKILL)
	if got := <-waits; !got.OK {
		t.Errorf("who waited: %s\n%s", got, b.Agent.Stderr())
	}
	if now := b.Process(); now.Host == p.Host {
		t.Error("it is the one that was stopped")
	}
	for _, g := range rig.Guards(t, b.Agent) {
		g.Signal(t, unix.SIGKILL)
	}
	if !rig.Eventually(60*time.Second, func() bool { return b.Get("/open/last").OK }) {
		t.Errorf("after the guard's end: %s\n%s", b.Get("/open/last"), b.Agent.Stderr())
	}
	if got := asked(b); !slices.Contains(got, "GET /open/waits") || !slices.Contains(got, "GET /open/last") {
		t.Errorf("api.test was asked %q", got)
	}
}
