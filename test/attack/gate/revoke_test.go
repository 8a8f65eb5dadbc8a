package gate

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestGateRevoke, rig.Everywhere)

// TestGateRevoke: what a new policy doesn't allow ends within a second, and
// nothing else does, not even under the same address.
func TestGateRevoke(t *testing.T) {
	l := rig.NewLab(t)
	ok4, ok6 := rig.Named("ok.test")
	s := rig.NewStreams()
	for _, host := range []string{"ok.test", "stay.test", "late.test"} {
		l.DNS.SetAddrs(host, ok4.String(), ok6.String())
		l.Web.Handle(host, s)
	}
	w := rig.ConfineIn(t, l, "ok.test\nstay.test\nlate.test\n", lab.BoxOptions{})
	urls := []string{"https://ok.test", "http://ok.test", "https://stay.test", "http://stay.test", "https://late.test", "http://late.test"}
	running := w.Follow(s, urls...)

	// A kept-alive connection that is idle now was used under the old policy too.
	began := time.Now()
	if r := w.SetPolicy("stay.test\nlate.test\n"); r.Code != 0 {
		t.Fatal(r)
	}
	t.Logf("reloaded after %v", time.Since(began))
	reloaded := time.Now()
	for _, u := range urls[:2] {
		w.Cut(s, u, running[u], reloaded)
	}
	for _, u := range urls[2:] {
		w.Lives(s, u, running[u])
	}
	e := w.Audited("the revocation", func(e rig.Event) bool {
		return e.Kind == "connect" && e.Verdict == "deny" && e.Name == "ok.test" && e.Port == 443 && strings.Contains(e.Reason, "no longer allowed")
	})
	if e.IP != ok4.String() && e.IP != ok6.String() || e.Out == 0 || e.In == 0 {
		t.Errorf("recorded as %+v", e)
	}
	w.Lab.Web.Forget()
	reset(t, w.Blocked("http", "-addr", rig.At(ok4, 443), "https://ok.test/"))
	w.Blocked("http", "-addr", rig.At(ok4, 80), "http://ok.test/")
	if got := w.Lab.Web.Hellos(); len(got) > 0 {
		t.Errorf("hellos arrived: %+v", got)
	}
	if got := w.Lab.Web.Requests("ok.test"); len(got) > 0 {
		t.Errorf("requests arrived: %+v", got)
	}

	// A deny line beats the line that allowed it; and a port may go by itself.
	if r := w.SetPolicy("stay.test:443\nlate.test\n!late.test:443\n"); r.Code != 0 {
		t.Fatal(r)
	}
	reloaded = time.Now()
	w.Cut(s, "http://stay.test", running["http://stay.test"], reloaded)
	w.Cut(s, "https://late.test", running["https://late.test"], reloaded)
	for _, u := range []string{"https://stay.test", "http://late.test"} {
		w.Lives(s, u, running[u])
		rig.Must(t, running[u].Signal(unix.SIGKILL))
	}
}

var _ = rig.Also(TestGateGuardKilled, rig.Everywhere)

// TestGateGuardKilled: no relay outlives the guard that judged it, what waited
// for it goes nowhere, and the next guard judges as well.
func TestGateGuardKilled(t *testing.T) {
	l := rig.NewLab(t)
	s := rig.NewStreams()
	l.Web.Handle("ok.test", s)
	w := rig.ConfineIn(t, l, gateList, lab.BoxOptions{})
	ok4, _ := rig.Named("ok.test")
	urls := []string{"https://ok.test", "http://ok.test"}
	running := w.Follow(s, urls...)
	before := w.Guard()
	before.Stop(t)
	// Redirected to a gate that does nothing: what it would refuse goes nowhere.
	accepted := w.Redirected()
	waiting := w.AsAgent(w.Box, "http", "-timeout", "1m", "-insecure", "-addr", rig.At(ok4, 443), "https://shared.test/")
	if !rig.Eventually(3*time.Second, func() bool { return w.Redirected() > accepted }) {
		t.Error("nothing waits for the gate")
	}
	before.Signal(t, unix.SIGKILL)
	killed := time.Now()
	for _, u := range urls {
		w.Cut(s, u, running[u], killed)
	}
	if !rig.Eventually(20*time.Second, func() bool { _, code := w.Status(); return code == 0 && w.Restarts() == 1 }) {
		t.Fatal("not healthy again")
	}
	w.Works("http", "https://ok.test/")
	w.Works("http", "http://ok.test/")
	w.Blocked("http", "-insecure", "-sni", "shared.test", "-addr", rig.At(ok4, 443), "https://shared.test/")
	w.Blocked("http", "-addr", rig.At(ok4, 80), "http://shared.test/")
	if v := rig.Verdict(t, waiting); v.OK {
		t.Errorf("got through while the guard was down: %s", v)
	}
	for _, h := range w.Lab.Web.Hellos() {
		if h.SNI == "shared.test" {
			t.Errorf("arrived: %+v", h)
		}
	}
	if got := w.Lab.Web.Requests("shared.test"); len(got) > 0 {
		t.Errorf("arrived: %+v", got)
	}
}

var _ = rig.Also(TestGateAudit, rig.InUp)

// TestGateAudit: one event for each connection, at its end, and one for each
// request.
func TestGateAudit(t *testing.T) {
	g := gate(t)
	a, b := g.next(), g.next()
	p := g.Works("http", "-h1", "-addr", rig.At(a, 443), "https://many.test/")
	g.connected(a, 443, len(fmt.Sprint(p.Detail["body"])))

	get := func(fields ...string) string {
		return request(append([]string{"GET / HTTP/1.1", "Host: many.test"}, fields...)...)
	}
	p = g.Works(g.bytes(rig.At(b, 80), []byte(get()+get()+get("Connection: close")), "-all")...)
	got, _ := p.Detail["received"].(string)
	if strings.Count(got, "HTTP/1.1 200 ") != 3 {
		t.Fatalf("want three answers: %s", p)
	}
	e := g.connected(b, 80, len(got))
	if want := 2*len(get()) + len(get("Connection: close")); e.Out != want || e.In != len(got) {
		t.Errorf("want %d bytes out, %d in: %+v", want, len(got), e)
	}
	requests := g.Audit(func(e rig.Event) bool { return e.Kind == "http" && e.IP == b.String() })
	if len(requests) != 3 {
		t.Errorf("want three events: %+v", requests)
	}
	for _, r := range requests {
		if r.Verdict != "allow" || r.Name != "many.test" || r.Port != 80 || r.Proto != "tcp" || r.Rule != "allowlist.txt:3" ||
			!strings.HasPrefix(r.Reason, "GET: ") || r.Seq > e.Seq {
			t.Errorf("recorded as %+v before %+v", r, e)
		}
	}
	held := g.next()
	ctx, cancel := context.WithTimeout(context.Background(), lab.Patience)
	defer cancel()
	idle := g.AsAgent(g.Box, "stream", "-h1", "-addr", rig.At(held, 443), "https://many.test/slow")
	release := make(chan struct{})
	g.Lab.Web.Handle("many.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-release:
		case <-ctx.Done():
		}
	}))
	if !rig.Eventually(10*time.Second, func() bool { return len(g.Box.Packets(rig.Toward(held.String()))) > 0 }) {
		t.Fatal("not connected")
	}
	if early := g.Audit(func(e rig.Event) bool { return e.Kind == "connect" && e.IP == held.String() }); len(early) > 0 {
		t.Errorf("recorded before the end: %+v", early)
	}
	close(release)
	idle.Wait(0)
	g.logged("connect", "allow", held, "many.test", "closed")
}

// connected waits for the one event of a connection of at least so many bytes.
func (g *gated) connected(a interface{ String() string }, port uint16, least int) rig.Event {
	g.Helper()
	of := func(e rig.Event) bool { return e.Kind == "connect" && e.IP == a.String() }
	e := g.Audited("the connection to "+a.String(), of)
	if e.Out == 0 || e.In < least {
		g.Errorf("figures of %+v, want at least %d bytes in", e, least)
	}
	if e.Verdict != "allow" || e.Name != "many.test" || e.Port != port || e.Proto != "tcp" || e.Rule != "allowlist.txt:3" {
		g.Errorf("recorded as %+v", e)
	}
	if n := len(g.Audit(of)); n != 1 {
		g.Errorf("%d events for one connection", n)
	}
	return e
}

// TestRevokeWaitsForTheGuard: a change of the policy is not over before the guard
// has ended its connections, or has had its time. Nothing passes on them meanwhile.
func TestRevokeWaitsForTheGuard(t *testing.T) {
	l := rig.NewLab(t)
	s := rig.NewStreams()
	l.Web.Handle("ok.test", s)
	w := rig.ConfineIn(t, l, "ok.test\n", lab.BoxOptions{})
	running := w.Follow(s, "https://ok.test")
	w.Guard().Stop(t)
	began := time.Now()
	w.Did("deny", "ok.test")
	if took := time.Since(began); took < 600*time.Millisecond {
		t.Errorf("denied after %v, with a guard that can't have heard of it", took)
	}
	w.Box.ForgetPackets()
	w.Guard().Signal(t, unix.SIGCONT)
	w.Blocked("http", "https://ok.test/")
	ok4, ok6 := rig.Named("ok.test")
	// The guard may still tell the server that it is over, which carries nothing.
	w.Sealed(lab.Any(lab.ToAddr(ok4.String()), lab.ToAddr(ok6.String())), func(p *lab.Packet) bool {
		return p.TCPFlags&0x04 == 0 || len(p.Payload) > 0
	})
	select {
	case <-running["https://ok.test"].Done():
	case <-time.After(10 * time.Second):
		t.Error("the agent's connection lives on")
	}
}
