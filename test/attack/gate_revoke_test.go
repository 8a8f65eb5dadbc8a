package attack

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// streams serves answers that don't end by themselves, and counts their lines.
type streams struct {
	mu    sync.Mutex
	lines map[string]int // by scheme and host
	live  map[string]int
}

func newStreams() *streams { return &streams{lines: map[string]int{}, live: map[string]int{}} }

func (s *streams) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/stream" {
		return
	}
	key := map[bool]string{false: "http", true: "https"}[r.TLS != nil] + "://" + r.Host
	s.add(s.live, key, 1)
	defer s.add(s.live, key, -1)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := fmt.Fprintln(w, "data"); err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		s.add(s.lines, key, 1)
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

func (s *streams) add(m map[string]int, key string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m[key] += n
}

func (s *streams) get(m map[string]int, key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return m[key]
}

// follow starts a stream for each URL as the agent and waits until all run.
func (w *world) follow(s *streams, urls ...string) map[string]*lab.Process {
	w.Helper()
	running := map[string]*lab.Process{}
	for _, u := range urls {
		running[u] = w.asAgent(w.box, "stream", u+"/stream")
	}
	for _, u := range urls {
		if !eventually(10*time.Second, func() bool { return s.get(s.lines, u) > 5 }) {
			w.Fatalf("%s does not stream: %s%s", u, running[u].Stdout(), running[u].Stderr())
		}
	}
	return running
}

// cut fails the test unless a stream ends within a second, by a reset, on both
// sides. A machine that does not come to it is given ten.
func (w *world) cut(s *streams, url string, p *lab.Process, since time.Time) {
	w.Helper()
	select {
	case <-p.Done():
	case <-time.After(time.Until(since.Add(10 * time.Second))):
		w.Errorf("%s: lives on ten seconds later", url)
	}
	v := verdict(w.T, p)
	if v.OK || !strings.Contains(v.Err, "reset") && !strings.Contains(v.Err, "EOF") {
		w.Errorf("%s: not cut: %s", url, v)
	}
	if !eventually(5*time.Second, func() bool { return s.get(s.live, url) == 0 }) {
		w.Errorf("%s: the server has not noticed", url)
	}
}

// lives fails the test unless more lines of a stream arrive.
func (w *world) lives(s *streams, url string, p *lab.Process) {
	w.Helper()
	before := s.get(s.lines, url)
	if !eventually(5*time.Second, func() bool { return s.get(s.lines, url) > before+20 }) {
		w.Errorf("%s: no longer streams: %s%s", url, p.Stdout(), p.Stderr())
	}
	select {
	case <-p.Done():
		w.Errorf("%s: ended: %s", url, p.Stdout())
	default:
	}
}

var _ = also(TestGateRevoke, everywhere)

// TestGateRevoke: what a new policy doesn't allow ends within a second, and
// nothing else does, not even under the same address.
func TestGateRevoke(t *testing.T) {
	l := newLab(t)
	ok4, ok6 := named("ok.test")
	s := newStreams()
	for _, host := range []string{"ok.test", "stay.test", "late.test"} {
		l.DNS.SetAddrs(host, ok4.String(), ok6.String())
		l.Web.Handle(host, s)
	}
	w := confineIn(t, l, "ok.test\nstay.test\nlate.test\n", lab.BoxOptions{})
	urls := []string{"https://ok.test", "http://ok.test", "https://stay.test", "http://stay.test", "https://late.test", "http://late.test"}
	running := w.follow(s, urls...)

	// A kept-alive connection that is idle now was used under the old policy too.
	began := time.Now()
	if r := w.setPolicy("stay.test\nlate.test\n"); r.Code != 0 {
		t.Fatal(r)
	}
	t.Logf("reloaded after %v", time.Since(began))
	reloaded := time.Now()
	for _, u := range urls[:2] {
		w.cut(s, u, running[u], reloaded)
	}
	for _, u := range urls[2:] {
		w.lives(s, u, running[u])
	}
	e := w.audited("the revocation", func(e event) bool {
		return e.Kind == "connect" && e.Verdict == "deny" && e.Name == "ok.test" && e.Port == 443 && strings.Contains(e.Reason, "no longer allowed")
	})
	if e.IP != ok4.String() && e.IP != ok6.String() || e.Out == 0 || e.In == 0 {
		t.Errorf("recorded as %+v", e)
	}
	w.lab.Web.Forget()
	reset(t, w.blocked("http", "-addr", at(ok4, 443), "https://ok.test/"))
	w.blocked("http", "-addr", at(ok4, 80), "http://ok.test/")
	if got := w.lab.Web.Hellos(); len(got) > 0 {
		t.Errorf("hellos arrived: %+v", got)
	}
	if got := w.lab.Web.Requests("ok.test"); len(got) > 0 {
		t.Errorf("requests arrived: %+v", got)
	}

	// A deny line beats the line that allowed it; and a port may go by itself.
	if r := w.setPolicy("stay.test:443\nlate.test\n!late.test:443\n"); r.Code != 0 {
		t.Fatal(r)
	}
	reloaded = time.Now()
	w.cut(s, "http://stay.test", running["http://stay.test"], reloaded)
	w.cut(s, "https://late.test", running["https://late.test"], reloaded)
	for _, u := range []string{"https://stay.test", "http://late.test"} {
		w.lives(s, u, running[u])
		must(t, running[u].Signal(unix.SIGKILL))
	}
}

var _ = also(TestGateGuardKilled, everywhere)

// TestGateGuardKilled: no relay outlives the guard that judged it, what waited
// for it goes nowhere, and the next guard judges as well.
func TestGateGuardKilled(t *testing.T) {
	l := newLab(t)
	s := newStreams()
	l.Web.Handle("ok.test", s)
	w := confineIn(t, l, gateList, lab.BoxOptions{})
	ok4, _ := named("ok.test")
	urls := []string{"https://ok.test", "http://ok.test"}
	running := w.follow(s, urls...)
	before := w.guard()
	before.stop(t)
	// Redirected to a gate that does nothing: what it would refuse goes nowhere.
	accepted := w.redirected()
	waiting := w.asAgent(w.box, "http", "-timeout", "1m", "-insecure", "-addr", at(ok4, 443), "https://shared.test/")
	if !eventually(3*time.Second, func() bool { return w.redirected() > accepted }) {
		t.Error("nothing waits for the gate")
	}
	before.signal(t, unix.SIGKILL)
	killed := time.Now()
	for _, u := range urls {
		w.cut(s, u, running[u], killed)
	}
	if !eventually(20*time.Second, func() bool { _, code := w.status(); return code == 0 && w.restarts() == 1 }) {
		t.Fatal("not healthy again")
	}
	w.works("http", "https://ok.test/")
	w.works("http", "http://ok.test/")
	w.blocked("http", "-insecure", "-sni", "shared.test", "-addr", at(ok4, 443), "https://shared.test/")
	w.blocked("http", "-addr", at(ok4, 80), "http://shared.test/")
	if v := verdict(t, waiting); v.OK {
		t.Errorf("got through while the guard was down: %s", v)
	}
	for _, h := range w.lab.Web.Hellos() {
		if h.SNI == "shared.test" {
			t.Errorf("arrived: %+v", h)
		}
	}
	if got := w.lab.Web.Requests("shared.test"); len(got) > 0 {
		t.Errorf("arrived: %+v", got)
	}
}

// redirected is how many connections over IPv4 the gate has, accepted or not.
func (w *world) redirected() (n int) {
	w.Helper()
	for _, s := range sockets(w.T, w.box, "/proc/net/tcp") {
		if s.state == "01" && s.local.Addr().IsLoopback() {
			n++
		}
	}
	return n
}

var _ = also(TestGateAudit, inUp)

// TestGateAudit: one event for each connection, at its end, and one for each
// request.
func TestGateAudit(t *testing.T) {
	g := gate(t)
	a, b := g.next(), g.next()
	p := g.works("http", "-h1", "-addr", at(a, 443), "https://many.test/")
	g.connected(a, 443, len(fmt.Sprint(p.Detail["body"])))

	get := func(fields ...string) string {
		return request(append([]string{"GET / HTTP/1.1", "Host: many.test"}, fields...)...)
	}
	p = g.works(g.bytes(at(b, 80), []byte(get()+get()+get("Connection: close")), "-all")...)
	got, _ := p.Detail["received"].(string)
	if strings.Count(got, "HTTP/1.1 200 ") != 3 {
		t.Fatalf("want three answers: %s", p)
	}
	e := g.connected(b, 80, len(got))
	if want := 2*len(get()) + len(get("Connection: close")); e.Out != want || e.In != len(got) {
		t.Errorf("want %d bytes out, %d in: %+v", want, len(got), e)
	}
	requests := g.audit(func(e event) bool { return e.Kind == "http" && e.IP == b.String() })
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
	idle := g.asAgent(g.box, "stream", "-h1", "-addr", at(held, 443), "https://many.test/slow")
	release := make(chan struct{})
	g.lab.Web.Handle("many.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-release:
		case <-ctx.Done():
		}
	}))
	if !eventually(10*time.Second, func() bool { return len(g.box.Packets(toward(held.String()))) > 0 }) {
		t.Fatal("not connected")
	}
	if early := g.audit(func(e event) bool { return e.Kind == "connect" && e.IP == held.String() }); len(early) > 0 {
		t.Errorf("recorded before the end: %+v", early)
	}
	close(release)
	idle.Wait(0)
	g.logged("connect", "allow", held, "many.test", "closed")
}

// connected waits for the one event of a connection of at least so many bytes.
func (g *gated) connected(a interface{ String() string }, port uint16, least int) event {
	g.Helper()
	of := func(e event) bool { return e.Kind == "connect" && e.IP == a.String() }
	e := g.audited("the connection to "+a.String(), of)
	if e.Out == 0 || e.In < least {
		g.Errorf("figures of %+v, want at least %d bytes in", e, least)
	}
	if e.Verdict != "allow" || e.Name != "many.test" || e.Port != port || e.Proto != "tcp" || e.Rule != "allowlist.txt:3" {
		g.Errorf("recorded as %+v", e)
	}
	if n := len(g.audit(of)); n != 1 {
		g.Errorf("%d events for one connection", n)
	}
	return e
}

// TestRevokeWaitsForTheGuard: a change of the policy is not over before the guard
// has ended its connections, or has had its time. Nothing passes on them meanwhile.
func TestRevokeWaitsForTheGuard(t *testing.T) {
	l := newLab(t)
	s := newStreams()
	l.Web.Handle("ok.test", s)
	w := confineIn(t, l, "ok.test\n", lab.BoxOptions{})
	running := w.follow(s, "https://ok.test")
	w.guard().stop(t)
	began := time.Now()
	w.did("deny", "ok.test")
	if took := time.Since(began); took < 600*time.Millisecond {
		t.Errorf("denied after %v, with a guard that can't have heard of it", took)
	}
	w.box.ForgetPackets()
	w.guard().signal(t, unix.SIGCONT)
	w.blocked("http", "https://ok.test/")
	ok4, ok6 := named("ok.test")
	// The guard may still tell the server that it is over, which carries nothing.
	w.sealed(lab.Any(lab.ToAddr(ok4.String()), lab.ToAddr(ok6.String())), func(p *lab.Packet) bool {
		return p.TCPFlags&0x04 == 0 || len(p.Payload) > 0
	})
	select {
	case <-running["https://ok.test"].Done():
	case <-time.After(10 * time.Second):
		t.Error("the agent's connection lives on")
	}
}
