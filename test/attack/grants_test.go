package attack

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// did runs agent-init as root and fails the test unless it succeeds.
func (w *world) did(args ...string) string {
	w.Helper()
	r := w.root(append([]string{"agent-init"}, args...)...)
	if r.Code != 0 {
		w.Fatalf("agent-init %s: %s", strings.Join(args, " "), r)
	}
	return r.Stdout
}

// refuses runs agent-init as root and fails the test unless it ends with code and a
// remedy, and says all of texts.
func (w *world) refuses(code int, args []string, texts ...string) {
	w.Helper()
	r := w.root(append([]string{"agent-init"}, args...)...)
	if r.Code != code || !strings.Contains(r.Stderr, "remedy:") {
		w.Errorf("agent-init %s: want %d and a remedy: %s", strings.Join(args, " "), code, r)
	}
	for _, text := range texts {
		if !strings.Contains(r.Stderr, text) {
			w.Errorf("agent-init %s: does not say %q: %s", strings.Join(args, " "), text, r)
		}
	}
}

// agentRuns runs agent-init with the agent's credentials.
func (w *world) agentRuns(args ...string) lab.Result {
	return w.root(append([]string{"agent-init", "exec", "--", "agent-init"}, args...)...)
}

// granted is one of what agent-init grants --json prints.
type granted struct {
	Number                     int
	Kind, Target, Reason, Made string
	UID, Asked                 int
	Outcome                    string
	Saved                      bool
}

func (w *world) grants() (list []granted) {
	w.Helper()
	var r struct{ Grants json.RawMessage }
	if err := json.Unmarshal([]byte(w.did("grants", "--json")), &r); err != nil {
		w.Fatal(err)
	}
	must(w.T, json.Unmarshal(r.Grants, &list))
	return list
}

var _ = also(TestGrant, everywhere)

// TestGrant: a person opens and closes at run time: names, streams and
// addresses, at once.
func TestGrant(t *testing.T) {
	l := newLab(t)
	s := newStreams()
	for _, host := range []string{"ok.test", "evil.test", "ok2.test"} {
		l.Web.Handle(host, s)
	}
	w := confineIn(t, l, "ok.test\n!ok2.test\n", lab.BoxOptions{})
	w.blocked("resolve", "evil.test")

	out := w.did("allow", "EVIL.test.", "--for", "1h", "--reason", "a try")
	if out != "1: allowed evil.test for 1h\n" {
		t.Errorf("it says %q", out)
	}
	w.works("http", "https://evil.test/") // the client was told NXDOMAIN a moment ago
	e := w.audited("the grant", func(e event) bool { return e.Kind == "grant" && e.Verdict == "allow" && e.Name == "evil.test" })
	if e.UID == nil || *e.UID != 0 || !strings.Contains(e.Reason, "1h") || !strings.Contains(e.Reason, "a try") || e.Rule != "grant-1:1" {
		t.Errorf("recorded as %+v", e)
	}
	w.audited("what the grant opened", func(e event) bool {
		return e.Kind == "dns" && e.Verdict == "allow" && e.Name == "evil.test" && e.Rule == "grant-1:1"
	})
	running := w.follow(s, "https://evil.test", "http://evil.test", "https://ok.test")
	began := time.Now()
	if out := w.did("deny", "evil.test", "--reason", "enough"); out != "1 ended: allow evil.test\n2: denied evil.test until agent-init ends\n" {
		t.Errorf("it says %q", out)
	}
	t.Logf("denied after %v", time.Since(began))
	for _, u := range []string{"https://evil.test", "http://evil.test"} {
		w.cut(s, u, running[u], began.Add(time.Second)) // the command has its own start to pay for
	}
	w.lives(s, "https://ok.test", running["https://ok.test"])
	w.blocked("resolve", "evil.test")
	if r := w.agentRuns("grants"); r.Code != 0 || !strings.Contains(r.Stdout, "enough") {
		t.Errorf("the agent can't see what is denied: %s", r)
	}

	// What files allow can be denied, and allowed again.
	w.did("deny", "ok.test")
	w.cut(s, "https://ok.test", running["https://ok.test"], time.Now())
	w.blocked("http", "https://ok.test/")
	w.did("grants", "--end", "3")
	w.works("http", "https://ok.test/")

	// What files deny can't be allowed.
	r := w.root("agent-init", "allow", "ok2.test")
	if r.Code != 0 || !strings.Contains(r.Stderr, "allowlist.txt:2") {
		t.Errorf("no warning that it has no effect: %s", r)
	}
	w.blocked("http", "https://ok2.test/")

	// Addresses, with their flows.
	w.blocked("tcp", "45.30.9.9:8443")
	w.did("allow", "45.30.9.9:8443")
	hold := w.asAgent(w.box, "tcp", "-hold", "10m", "45.30.9.9:8443")
	if !eventually(10*time.Second, func() bool { return len(w.box.Packets(lab.ToAddr("45.30.9.9"))) > 3 }) {
		t.Fatalf("the address is not open: %s", hold.Stdout())
	}
	w.did("deny", "45.30.9.9:8443")
	w.box.ForgetPackets()
	select {
	case <-hold.Done():
	case <-time.After(lab.Patience):
		t.Error("the flow outlives its grant")
	}
	w.sealed(lab.ToAddr("45.30.9.9"))

	for _, tc := range [][]string{{"allow", "169.254.169.254"}, {"allow", "*"}, {"allow", "*.com"}, {"allow", "https://x.test/"}, {"allow", "127.0.0.1"}, {"allow", ""},
		{"allow", "a.test\nb.test"}, {"allow", "!a.test"}, {"allow", "a.test required"}, {"allow", "a.test", "--for", "25h"}, {"allow", "a.test", "--for", "-1s"},
		{"allow"}, {"allow", "a.test", "b.test"}, {"deny"}, {"grants", "--end", "99"}, {"allow", "--request", "99"}, {"allow", "evil.test", "--request", "2"},
		{"allow", "a.test", "--reason", "\x1b[2J"}, {"allow", "a.test", "--reason", strings.Repeat("x", 201)}} {
		w.refuses(64, tc)
	}
	if s, code := w.status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}

// TestGrantEnds: a grant ends by itself, whatever happened in between.
func TestGrantEnds(t *testing.T) {
	l := newLab(t)
	s := newStreams()
	l.Web.Handle("evil.test", s)
	w := confineIn(t, l, "ok.test\n", lab.BoxOptions{})
	w.did("allow", "evil.test", "--for", "10s")
	w.did("allow", "45.30.9.9:8443", "--for", "10s")
	w.did("deny", "ok.test", "--for", "10s")
	if r := w.setPolicy("ok.test\nok2.test\n"); r.Code != 0 {
		t.Fatal(r)
	}
	w.works("http", "https://evil.test/")
	w.blocked("http", "https://ok.test/")
	guard := w.guard()
	guard.signal(t, unix.SIGKILL)
	if !eventually(10*time.Second, func() bool { _, code := w.status(); return code == 0 && w.guard().pid != guard.pid }) {
		t.Fatal("no new guard")
	}
	running := w.follow(s, "https://evil.test")
	w.blocked("http", "https://ok.test/")
	select {
	case <-running["https://evil.test"].Done():
	case <-time.After(lab.Patience):
		t.Fatal("the grant never ends")
	}
	if v := verdict(t, running["https://evil.test"]); v.OK {
		t.Errorf("the stream ended in peace: %s", v)
	}
	w.audited("its end", func(e event) bool {
		return e.Kind == "grant" && e.Name == "evil.test" && strings.HasPrefix(e.Reason, "expired")
	})
	if !eventually(5*time.Second, func() bool { return len(w.grants()) == 0 }) {
		t.Errorf("there are still %+v", w.grants())
	}
	w.box.ForgetPackets()
	w.blocked("resolve", "evil.test")
	w.blocked("tcp", "45.30.9.9:8443")
	w.works("http", "https://ok.test/")
	evil4, evil6 := named("evil.test")
	w.sealed(lab.Any(lab.ToAddr(evil4.String()), lab.ToAddr(evil6.String()), lab.ToAddr("45.30.9.9")))
	if s, code := w.status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}

// TestGrantEndsWithTheKeeper: in modes where the rules outlive the keeper, no
// grant does.
func TestGrantEndsWithTheKeeper(t *testing.T) {
	w := start(t, "ok.test\n", lab.BoxOptions{}, "sleep", "infinity")
	p := w.box.ExecStart(lab.Cmd{Args: []string{"agent-init", "sidecar"}})
	w.ready()
	w.did("allow", "45.30.9.9:8443")
	w.works("tcp", "45.30.9.9:8443")
	must(t, p.Signal(unix.SIGTERM))
	<-p.Done()
	w.box.ForgetPackets()
	if r := w.box.Poke(lab.AgentUID, "tcp", "45.30.9.9:8443"); r.OK {
		t.Errorf("the address is open after the keeper: %s", r)
	}
	w.sealed(lab.ToAddr("45.30.9.9"))
	w.refuses(1, []string{"allow", "45.30.9.9:8443"})
}

// TestRequest: the agent proposes, and only a person grants.
func TestRequest(t *testing.T) {
	w := confine(t, "ok.test\n", lab.BoxOptions{})
	r := w.agentRuns("request", "Evil.TEST", "--reason", "to look at it")
	if r.Code != 0 || !strings.Contains(r.Stdout, "agent-init allow --request 1") {
		t.Fatalf("request: %s", r)
	}
	w.blocked("resolve", "evil.test")
	e := w.audited("the request", func(e event) bool { return e.Kind == "grant" && e.Verdict == "info" && e.Name == "evil.test" })
	if e.UID == nil || *e.UID != lab.AgentUID || !strings.Contains(e.Reason, "to look at it") {
		t.Errorf("recorded as %+v", e)
	}
	if s, code := w.status(); code != 0 || fmt.Sprint(s["grants"]) != "map[allowed:0 denied:0 requests:1]" {
		t.Errorf("the status is %d, %v", code, s["grants"])
	}
	if r := w.agentRuns("request", "ok.test"); r.Code != 0 || !strings.Contains(r.Stdout, "allowed already, by allowlist.txt:1") {
		t.Errorf("request of what is allowed: %s", r)
	}
	w.refuses(64, []string{"allow", "other.test", "--request", "1"}, "evil.test")
	if out := w.did("allow", "--request", "1", "--for", "10m"); out != "1: allowed evil.test for 10m\n" {
		t.Errorf("it says %q", out)
	}
	w.works("http", "https://evil.test/")
	// Who asked finds what became of it.
	if g := w.grants(); len(g) != 2 || g[0].Kind != "allow" || g[0].Number != 1 || g[0].UID != 0 || g[1].Kind != "request" || g[1].Outcome != "granted" {
		t.Errorf("the grants are %+v", g)
	}
}

// TestRequestFlood: the agent can neither fill memory nor the log, nor be
// seen as more than it is, nor stop a person from working.
func TestRequestFlood(t *testing.T) {
	w := confine(t, "ok.test\n", lab.BoxOptions{})
	r := w.agentRuns("request", "first.test", "--reason", strings.Repeat("\u202eé", 40))
	if r.Code != 64 { // a mark that reorders text is not sent at all
		t.Errorf("request with marks: %s", r)
	}
	flood := `for i in $(seq 40); do agent-init request "n$i.test" >/dev/null 2>&1 & done; wait`
	for range 3 {
		w.script(flood)
	}
	if g := w.grants(); len(g) == 0 || len(g) > 16 {
		t.Errorf("%d requests of 120 are kept", len(g))
	}
	if n := len(w.audit(func(e event) bool { return e.Kind == "grant" })); n > 16 {
		t.Errorf("%d lines in the log", n)
	}
	socket := filepath.Join("/run/agent-init", "request.sock")
	for what, sent := range map[string]string{
		"a verb of root's": `{"version":1,"verb":"allow","target":"evil.test"}`,
		"no JSON":          "GET / HTTP/1.1",
		"a long line":      strings.Repeat("x", 100000),
		"a bad target":     `{"version":1,"verb":"request","target":"x\u001b[2Jy.test"}`,
		"another's uid":    `{"version":1,"verb":"request","target":"evil.test","uid":0}`,
		"metadata":         `{"version":1,"verb":"request","target":"169.254.169.254"}`,
	} {
		if p := w.poke("unix", "-send", sent+"\n", socket); p.OK && strings.Contains(fmt.Sprint(p.Detail), `"ok":true`) {
			t.Errorf("%s: %s", what, p)
		}
	}
	// Held open by many, it still serves nobody else's business.
	w.script(`for i in $(seq 50); do poke unix -send x ` + socket + ` >/dev/null 2>&1 & done; wait`)
	w.blocked("resolve", "evil.test")
	w.did("allow", "evil.test")
	w.works("http", "https://evil.test/")
	// Another user of the container has no say at all.
	if r := w.box.Exec(lab.Cmd{Args: []string{"agent-init", "request", "x.test"}, UID: 4321}); r.Code != 77 {
		t.Errorf("uid 4321 may ask: %s", r)
	}
}

// TestControlSocket: the agent can't reach the socket that grants, nor put
// one of its own in its place, whoever it says it is.
func TestControlSocket(t *testing.T) {
	w := confine(t, "ok.test\n", lab.BoxOptions{})
	control := "/run/agent-init/control.sock"
	for _, args := range [][]string{{"allow", "evil.test"}, {"deny", "ok.test"}, {"grants", "--end", "1"}} {
		if r := w.agentRuns(args...); r.Code != 77 || !strings.Contains(r.Stderr, "only root") {
			t.Errorf("agent-init %v as the agent: %s", args, r)
		}
	}
	ask := `{"version":1,"verb":"allow","target":"evil.test"}` + "\n"
	if p := w.blocked("unix", "-send", ask, control); p.Errno != "EACCES" {
		t.Errorf("the agent can connect: %s", p)
	}
	// Root of a user namespace of its own is nobody outside of it.
	for _, p := range []lab.Poke{w.poke("unshare", "user", "unix", "-send", ask, control), w.poke("unshare", "user", "unix", "-send", ask, "/run/agent-init/request.sock")} {
		if strings.Contains(fmt.Sprint(p.Detail), `"ok":true`) {
			t.Errorf("served: %s", p)
		}
	}
	w.script(`cd /run/agent-init && { rm -f *.sock; mv control.sock x; ln -s /tmp x; touch control.sock.new; ln -f request.sock /tmp/hard; chmod 666 control.sock; } 2>/dev/null; true`)
	if r := w.root("sh", "-c", "cd /run/agent-init && stat -c '%F %u %a' control.sock request.sock metrics.sock"); r.Stdout != "socket 0 600\nsocket 0 666\nsocket 0 600\n" {
		t.Errorf("the sockets are\n%s", r.Stdout)
	}
	// If the mode of a socket were wrong, its server would still ask who is there.
	w.root("chmod", "666", control, "/run/agent-init/metrics.sock")
	for range 3 { // and grants nothing, see below
		if p := w.poke("unix", "-send", ask, control); strings.Contains(fmt.Sprint(p.Detail), `"ok":true`) {
			t.Errorf("the agent is served where it can connect: %s", p)
		}
	}
	if p := w.poke("unix", "-send", "GET / HTTP/1.0\r\n\r\n", "/run/agent-init/metrics.sock"); strings.Contains(fmt.Sprint(p.Detail), "agent_init_") {
		t.Errorf("the agent is served where it can connect: %s", p)
	}
	w.root("chmod", "600", control, "/run/agent-init/metrics.sock")
	if len(w.grants()) != 0 {
		t.Errorf("granted: %+v", w.grants())
	}
	w.blocked("resolve", "evil.test")
	w.did("allow", "evil.test")
	w.works("resolve", "evil.test")
}
