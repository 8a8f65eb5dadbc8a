package attack

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// inspected confines a box whose policy has api.test inspected.
func inspected(t *testing.T, more ...string) *brokered {
	t.Helper()
	w := lookedInto(t, "ok.test\napi.test GET /open/**\n"+strings.Join(more, "\n")+"\n", lab.BoxOptions{})
	return &brokered{world: w}
}

// get asks api.test, as a program that trusts what it is told to.
func (b *brokered) get(path string, flags ...string) lab.Poke {
	b.Helper()
	args := append([]string{"http", "-timeout", "60s", "-ca", trust()}, flags...)
	return b.poke(append(args, "https://api.test"+path)...)
}

func statusOf(p lab.Poke) string { return fmt.Sprint(p.Detail["status"]) }

// asked are the requests that have reached api.test.
func (b *brokered) asked() (all []string) {
	for _, r := range b.lab.Web.Requests("api.test") {
		all = append(all, r.Method+" "+r.URI)
	}
	return all
}

var _ = also(TestInspected, everywhere)

// TestInspected: of an inspected name, only the requests arrive that a rule allows, over HTTP/1.1 and HTTP/2, and only
// by way of the broker.
func TestInspected(t *testing.T) {
	b := inspected(t)
	for _, flags := range [][]string{nil, {"-h1"}} {
		if p := b.get("/open/x", flags...); !p.OK || statusOf(p) != "200" {
			t.Fatalf("what a rule allows: %s\n%s", p, b.agent.Stderr())
		}
		for _, refused := range [][]string{{"/closed"}, {"/open/x", "-method", "POST"}, {"/open/../closed"}, {"/open/x", "-header", "X-HTTP-Method-Override: POST"}} {
			if p := b.get(refused[0], append(refused[1:], flags...)...); statusOf(p) == "200" {
				t.Errorf("%v: %s", refused, p)
			}
		}
	}
	if got := b.asked(); !slices.Equal(got, []string{"GET /open/x", "GET /open/x"}) {
		t.Errorf("api.test was asked %q", got)
	}
	// Whoever trusts the internet's authorities alone sees that it is not the name's own server.
	b.blocked("http", "-ca", bundle, "https://api.test/open/x")
	b.blocked("http", "-insecure", "-sni", "other.test", "https://api.test/open/x")
	if p := b.get("/open/x", "-host", "other.test"); statusOf(p) != "421" {
		t.Errorf("another host inside: %s", p)
	}
	if r := b.root("cat", "/run/agent-init/selftest.json"); !strings.Contains(r.Stdout, `"api.test"`) {
		t.Errorf("the self-test does not ask api.test: %s", r)
	}
	b.audited("the connection", func(e event) bool {
		return e.Kind == "connect" && e.Name == "api.test" && e.Reason == "inspected by the broker"
	})
	b.audited("the refusal", func(e event) bool { return e.Kind == "broker" && e.Name == "api.test" && e.Verdict == "deny" })
}

var _ = also(TestInspectedWaits, everywhere)

// TestInspectedWaits: a connection that is made while there is no broker waits for the next one. Nothing of it goes
// another way, and the same holds for the guard.
func TestInspectedWaits(t *testing.T) {
	b := inspected(t)
	if p := b.get("/open/first"); !p.OK {
		t.Fatalf("%s\n%s", p, b.agent.Stderr())
	}
	p := b.process()
	p.stop(t) // it takes nothing over, and is ended after a while
	waits := make(chan lab.Poke)
	go func() { waits <- b.get("/open/waits", "-insecure") }() // the next broker has another authority
	time.Sleep(time.Second)
	p.signal(t, unix.SIGKILL)
	if got := <-waits; !got.OK {
		t.Errorf("who waited: %s\n%s", got, b.agent.Stderr())
	}
	if now := b.process(); now.host == p.host {
		t.Error("it is the one that was stopped")
	}
	for _, g := range guards(t, b.agent) {
		g.signal(t, unix.SIGKILL)
	}
	if !eventually(60*time.Second, func() bool { return b.get("/open/last").OK }) {
		t.Errorf("after the guard's end: %s\n%s", b.get("/open/last"), b.agent.Stderr())
	}
	if got := b.asked(); !slices.Contains(got, "GET /open/waits") || !slices.Contains(got, "GET /open/last") {
		t.Errorf("api.test was asked %q", got)
	}
}
