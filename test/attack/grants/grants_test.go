package grants

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestGrant, rig.Everywhere)

// TestGrant: a person opens and closes at run time: names, streams and
// addresses, at once.
func TestGrant(t *testing.T) {
	l := rig.NewLab(t)
	s := rig.NewStreams()
	for _, host := range []string{"ok.test", "evil.test", "ok2.test"} {
		l.Web.Handle(host, s)
	}
	w := rig.ConfineIn(t, l, "ok.test\n!ok2.test\n", lab.BoxOptions{})
	w.Blocked("resolve", "evil.test")

	out := w.Did("allow", "EVIL.test.", "--for", "1h", "--reason", "a try")
	if out != "1: allowed evil.test for 1h\n" {
		t.Errorf("it says %q", out)
	}
	w.Works("http", "https://evil.test/") // the client was told NXDOMAIN a moment ago
	e := w.Audited("the grant", func(e rig.Event) bool { return e.Kind == "grant" && e.Verdict == "allow" && e.Name == "evil.test" })
	if e.UID == nil || *e.UID != 0 || !strings.Contains(e.Reason, "1h") || !strings.Contains(e.Reason, "a try") || e.Rule != "grant-1:1" {
		t.Errorf("recorded as %+v", e)
	}
	w.Audited("what the grant opened", func(e rig.Event) bool {
		return e.Kind == "dns" && e.Verdict == "allow" && e.Name == "evil.test" && e.Rule == "grant-1:1"
	})
	running := w.Follow(s, "https://evil.test", "http://evil.test", "https://ok.test")
	began := time.Now()
	if out := w.Did("deny", "evil.test", "--reason", "enough"); out != "1 ended: allow evil.test\n2: denied evil.test until agent-init ends\n" {
		t.Errorf("it says %q", out)
	}
	t.Logf("denied after %v", time.Since(began))
	for _, u := range []string{"https://evil.test", "http://evil.test"} {
		w.Cut(s, u, running[u], began.Add(time.Second)) // the command has its own start to pay for
	}
	w.Lives(s, "https://ok.test", running["https://ok.test"])
	w.Blocked("resolve", "evil.test")
	if r := w.AgentRuns("grants"); r.Code != 0 || !strings.Contains(r.Stdout, "enough") {
		t.Errorf("the agent can't see what is denied: %s", r)
	}

	// What files allow can be denied, and allowed again.
	w.Did("deny", "ok.test")
	w.Cut(s, "https://ok.test", running["https://ok.test"], time.Now())
	w.Blocked("http", "https://ok.test/")
	w.Did("grants", "--end", "3")
	w.Works("http", "https://ok.test/")

	// What files deny can't be allowed.
	r := w.Root("agent-init", "allow", "ok2.test")
	if r.Code != 0 || !strings.Contains(r.Stderr, "allowlist.txt:2") {
		t.Errorf("no warning that it has no effect: %s", r)
	}
	w.Blocked("http", "https://ok2.test/")

	// Addresses, with their flows.
	w.Blocked("tcp", "45.30.9.9:8443")
	w.Did("allow", "45.30.9.9:8443")
	hold := w.AsAgent(w.Box, "tcp", "-hold", "10m", "45.30.9.9:8443")
	if !rig.Eventually(10*time.Second, func() bool { return len(w.Box.Packets(lab.ToAddr("45.30.9.9"))) > 3 }) {
		t.Fatalf("the address is not open: %s", hold.Stdout())
	}
	w.Did("deny", "45.30.9.9:8443")
	w.Box.ForgetPackets()
	select {
	case <-hold.Done():
	case <-time.After(lab.Patience):
		t.Error("the flow outlives its grant")
	}
	w.Sealed(lab.ToAddr("45.30.9.9"))

	for _, tc := range [][]string{{"allow", "169.254.169.254"}, {"allow", "*"}, {"allow", "*.com"}, {"allow", "https://x.test/"}, {"allow", "127.0.0.1"}, {"allow", ""},
		{"allow", "a.test\nb.test"}, {"allow", "!a.test"}, {"allow", "a.test required"}, {"allow", "a.test", "--for", "25h"}, {"allow", "a.test", "--for", "-1s"},
		{"allow"}, {"allow", "a.test", "b.test"}, {"deny"}, {"grants", "--end", "99"}, {"allow", "--request", "99"}, {"allow", "evil.test", "--request", "2"},
		{"allow", "a.test", "--reason", "\x1b[2J"}, {"allow", "a.test", "--reason", strings.Repeat("x", 201)}} {
		w.Refuses(64, tc)
	}
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}

// TestGrantEnds: a grant ends by itself, whatever happened in between.
func TestGrantEnds(t *testing.T) {
	l := rig.NewLab(t)
	s := rig.NewStreams()
	l.Web.Handle("evil.test", s)
	w := rig.ConfineIn(t, l, "ok.test\n", lab.BoxOptions{})
	w.Did("allow", "evil.test", "--for", "10s")
	w.Did("allow", "45.30.9.9:8443", "--for", "10s")
	w.Did("deny", "ok.test", "--for", "10s")
	if r := w.SetPolicy("ok.test\nok2.test\n"); r.Code != 0 {
		t.Fatal(r)
	}
	w.Works("http", "https://evil.test/")
	w.Blocked("http", "https://ok.test/")
	guard := w.Guard()
	guard.Signal(t, unix.SIGKILL)
	if !rig.Eventually(10*time.Second, func() bool { _, code := w.Status(); return code == 0 && w.Guard().Pid != guard.Pid }) {
		t.Fatal("no new guard")
	}
	running := w.Follow(s, "https://evil.test")
	w.Blocked("http", "https://ok.test/")
	select {
	case <-running["https://evil.test"].Done():
	case <-time.After(lab.Patience):
		t.Fatal("the grant never ends")
	}
	if v := rig.Verdict(t, running["https://evil.test"]); v.OK {
		t.Errorf("the stream ended in peace: %s", v)
	}
	w.Audited("its end", func(e rig.Event) bool {
		return e.Kind == "grant" && e.Name == "evil.test" && strings.HasPrefix(e.Reason, "expired")
	})
	if !rig.Eventually(5*time.Second, func() bool { return len(w.Grants()) == 0 }) {
		t.Errorf("there are still %+v", w.Grants())
	}
	w.Box.ForgetPackets()
	w.Blocked("resolve", "evil.test")
	w.Blocked("tcp", "45.30.9.9:8443")
	w.Works("http", "https://ok.test/")
	evil4, evil6 := rig.Named("evil.test")
	w.Sealed(lab.Any(lab.ToAddr(evil4.String()), lab.ToAddr(evil6.String()), lab.ToAddr("45.30.9.9")))
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}

// TestGrantEndsWithTheKeeper: in modes where the rules outlive the keeper, no
// grant does.
func TestGrantEndsWithTheKeeper(t *testing.T) {
	w := rig.Start(t, "ok.test\n", lab.BoxOptions{}, "sleep", "infinity")
	p := w.Box.ExecStart(lab.Cmd{Args: []string{"agent-init", "sidecar"}})
	w.Ready()
	w.Did("allow", "45.30.9.9:8443")
	w.Works("tcp", "45.30.9.9:8443")
	rig.Must(t, p.Signal(unix.SIGTERM))
	<-p.Done()
	w.Box.ForgetPackets()
	if r := w.Box.Poke(lab.AgentUID, "tcp", "45.30.9.9:8443"); r.OK {
		t.Errorf("the address is open after the keeper: %s", r)
	}
	w.Sealed(lab.ToAddr("45.30.9.9"))
	w.Refuses(1, []string{"allow", "45.30.9.9:8443"})
}

// TestRequest: the agent proposes, and only a person grants.
func TestRequest(t *testing.T) {
	w := rig.Confine(t, "ok.test\n", lab.BoxOptions{})
	r := w.AgentRuns("request", "Evil.TEST", "--reason", "to look at it")
	if r.Code != 0 || !strings.Contains(r.Stdout, "agent-init allow --request 1") {
		t.Fatalf("request: %s", r)
	}
	w.Blocked("resolve", "evil.test")
	e := w.Audited("the request", func(e rig.Event) bool { return e.Kind == "grant" && e.Verdict == "info" && e.Name == "evil.test" })
	if e.UID == nil || *e.UID != lab.AgentUID || !strings.Contains(e.Reason, "to look at it") {
		t.Errorf("recorded as %+v", e)
	}
	if s, code := w.Status(); code != 0 || fmt.Sprint(s["grants"]) != "map[allowed:0 denied:0 requests:1]" {
		t.Errorf("the status is %d, %v", code, s["grants"])
	}
	if r := w.AgentRuns("request", "ok.test"); r.Code != 0 || !strings.Contains(r.Stdout, "allowed already, by allowlist.txt:1") {
		t.Errorf("request of what is allowed: %s", r)
	}
	w.Refuses(64, []string{"allow", "other.test", "--request", "1"}, "evil.test")
	if out := w.Did("allow", "--request", "1", "--for", "10m"); out != "1: allowed evil.test for 10m\n" {
		t.Errorf("it says %q", out)
	}
	w.Works("http", "https://evil.test/")
	// Who asked finds what became of it.
	if g := w.Grants(); len(g) != 2 || g[0].Kind != "allow" || g[0].Number != 1 || g[0].UID != 0 || g[1].Kind != "request" || g[1].Outcome != "granted" {
		t.Errorf("the grants are %+v", g)
	}
}

// TestRequestFlood: the agent can neither fill memory nor the log, nor be
// seen as more than it is, nor stop a person from working.
func TestRequestFlood(t *testing.T) {
	w := rig.Confine(t, "ok.test\n", lab.BoxOptions{})
	r := w.AgentRuns("request", "first.test", "--reason", strings.Repeat("\u202eé", 40))
	if r.Code != 64 { // a mark that reorders text is not sent at all
		t.Errorf("request with marks: %s", r)
	}
	flood := `for i in $(seq 40); do agent-init request "n$i.test" >/dev/null 2>&1 & done; wait`
	for range 3 {
		w.Script(flood)
	}
	if g := w.Grants(); len(g) == 0 || len(g) > 16 {
		t.Errorf("%d requests of 120 are kept", len(g))
	}
	if n := len(w.Audit(func(e rig.Event) bool { return e.Kind == "grant" })); n > 16 {
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
		if p := w.Poke("unix", "-send", sent+"\n", socket); p.OK && strings.Contains(fmt.Sprint(p.Detail), `"ok":true`) {
			t.Errorf("%s: %s", what, p)
		}
	}
	// Held open by many, it still serves nobody else's business.
	w.Script(`for i in $(seq 50); do poke unix -send x ` + socket + ` >/dev/null 2>&1 & done; wait`)
	w.Blocked("resolve", "evil.test")
	w.Did("allow", "evil.test")
	w.Works("http", "https://evil.test/")
	// Another user of the container has no say at all.
	if r := w.Box.Exec(lab.Cmd{Args: []string{"agent-init", "request", "x.test"}, UID: 4321}); r.Code != 77 {
		t.Errorf("uid 4321 may ask: %s", r)
	}
}

// TestControlSocket: the agent can't reach the socket that grants, nor put
// one of its own in its place, whoever it says it is.
func TestControlSocket(t *testing.T) {
	w := rig.Confine(t, "ok.test\n", lab.BoxOptions{})
	control := "/run/agent-init/control.sock"
	for _, args := range [][]string{{"allow", "evil.test"}, {"deny", "ok.test"}, {"grants", "--end", "1"}} {
		if r := w.AgentRuns(args...); r.Code != 77 || !strings.Contains(r.Stderr, "only root") {
			t.Errorf("agent-init %v as the agent: %s", args, r)
		}
	}
	ask := `{"version":1,"verb":"allow","target":"evil.test"}` + "\n"
	if p := w.Blocked("unix", "-send", ask, control); p.Errno != "EACCES" {
		t.Errorf("the agent can connect: %s", p)
	}
	// Root of a user namespace of its own is nobody outside of it.
	for _, p := range []lab.Poke{w.Poke("unshare", "user", "unix", "-send", ask, control), w.Poke("unshare", "user", "unix", "-send", ask, "/run/agent-init/request.sock")} {
		if strings.Contains(fmt.Sprint(p.Detail), `"ok":true`) {
			t.Errorf("served: %s", p)
		}
	}
	w.Script(`cd /run/agent-init && { rm -f *.sock; mv control.sock x; ln -s /tmp x; touch control.sock.new; ln -f request.sock /tmp/hard; chmod 666 control.sock; } 2>/dev/null; true`)
	if r := w.Root("sh", "-c", "cd /run/agent-init && stat -c '%F %u %a' control.sock request.sock"); r.Stdout != "socket 0 600\nsocket 0 666\n" {
		t.Errorf("the sockets are\n%s", r.Stdout)
	}
	// If the mode of a socket were wrong, its server would still ask who is there.
	w.Root("chmod", "666", control)
	for range 3 { // and grants nothing, see below
		if p := w.Poke("unix", "-send", ask, control); strings.Contains(fmt.Sprint(p.Detail), `"ok":true`) {
			t.Errorf("the agent is served where it can connect: %s", p)
		}
	}
	w.Root("chmod", "600", control)
	if len(w.Grants()) != 0 {
		t.Errorf("granted: %+v", w.Grants())
	}
	w.Blocked("resolve", "evil.test")
	w.Did("allow", "evil.test")
	w.Works("resolve", "evil.test")
}
