package attack

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// phases are the files of a policy with a set-up and a verification.
func phases() []lab.File {
	return []lab.File{
		{Path: "/etc/agent-init/phases/setup/more.txt", Data: []byte("evil.test\n45.30.9.9:8443\n")},
		{Path: "/etc/agent-init/phases/verify/more.yaml", Data: []byte("domains: [ok2.test]\n")},
	}
}

// phase has root enter a phase, and fails the test unless it is proved.
func (w *world) phase(to string) {
	w.Helper()
	if r := w.root("agent-init", "phase", to); r.Code != 0 || !strings.Contains(r.Stdout, " -> "+to+"\n") {
		w.Fatalf("phase %s: %s", to, r)
	}
}

// in says which phase is in force.
func (w *world) in() string {
	w.Helper()
	return strings.TrimSpace(w.root("agent-init", "phase").Stdout)
}

// TestPhases: what was open for the set-up is cut when the run begins, and refused from then on. Neither the agent nor
// root goes back, whether by command or by file, and what can't be proved ends sealed.
func TestPhases(t *testing.T) {
	l := newLab(t)
	s := newStreams()
	for _, host := range []string{"ok.test", "evil.test"} {
		l.Web.Handle(host, s)
	}
	l.DNS.SetAddrs("late.test", "45.30.0.31")
	w := startIn(t, l, "ok.test\n", lab.BoxOptions{Files: phases()}, "agent-init", "run", "--phase", "setup", "--", "sleep", "infinity")
	w.ready()
	running := w.follow(s, "https://ok.test", "https://evil.test")
	hold := w.asAgent(w.box, "tcp", "-hold", "10m", "45.30.9.9:8443")
	if !eventually(lab.Patience, func() bool { return len(w.box.Packets(lab.ToAddr("45.30.9.9"))) > 3 }) {
		t.Fatalf("the address is not open: %s", hold.Stdout())
	}
	w.did("allow", "late.test", "--for", "start")
	w.works("resolve", "late.test")
	if at := w.in(); at != "setup" {
		t.Errorf("it begins in %q", at)
	}
	if r := w.agentRuns("phase", "run"); r.Code != 77 {
		t.Errorf("the agent changes the phase: %s", r)
	}
	for _, path := range []string{"/etc/agent-init/phase", "/etc/agent-init/phases/setup/x.txt", "/var/lib/agent-init/phase/setup"} {
		w.blocked("write", "-data", "setup", path)
	}

	w.phase("run")
	for _, u := range []string{"https://evil.test", "https://ok.test"} {
		w.cut(s, u, running[u], time.Now())
	}
	select {
	case <-hold.Done():
	case <-time.After(lab.Patience):
		t.Error("a flow of the set-up outlives it")
	}
	w.box.ForgetPackets()
	l.DNS.Forget()
	evil4, _ := named("evil.test")
	for _, name := range []string{"evil.test", "late.test", "ok2.test"} {
		w.blocked("resolve", name)
	}
	w.blocked("tcp", "45.30.9.9:8443")
	w.blocked("tcp", at(evil4, 443))
	w.unasked("evil.test", "late.test", "ok2.test")
	w.sealed(lab.ToAddr("45.30.9.9"))
	w.sealed(lab.ToAddr(evil4.String()))
	w.works("http", "https://ok.test/")
	w.audited("the change", func(e event) bool {
		return e.Kind == "phase" && e.Verdict == "info" && e.UID != nil && strings.HasPrefix(e.Reason, "from setup to run by a command, proved by ")
	})
	w.audited("the end of the grant", func(e event) bool {
		return e.Kind == "grant" && strings.Contains(e.Reason, "ended with the phase setup")
	})

	w.refuses(1, []string{"phase", "setup"}, "setup comes once")
	w.phase("verify")
	w.works("resolve", "ok2.test")
	w.refuses(1, []string{"phase", "setup"}, "setup comes once")
	w.phase("run")
	w.blocked("resolve", "ok2.test")

	// Two at once: each is whole, and the later one holds.
	var both sync.WaitGroup
	for _, to := range []string{"verify", "run"} {
		both.Go(func() { w.phase(to) })
	}
	both.Wait()
	if at := w.in(); at != "verify" && at != "run" {
		t.Errorf("after two at once it is %s", at)
	}

	// The file has the last word, but none that leads back.
	write := func(text string) {
		t.Helper()
		must(t, w.box.WriteFile("/etc/agent-init/phase", []byte(text), 0o644))
	}
	write("verify\n")
	if !eventually(lab.Patience, func() bool { return w.in() == "verify" }) {
		t.Fatal("the file is not followed")
	}
	w.refuses(1, []string{"phase", "run"}, "/etc/agent-init/phase says verify")
	write("run")
	if !eventually(lab.Patience, func() bool { return w.in() == "run" }) {
		t.Fatal("the file is not followed")
	}
	for _, text := range []string{"setup", "ru"} {
		write(text)
		if !eventually(lab.Patience, func() bool {
			s, code := w.status()
			return code != 0 && strings.Contains(fmt.Sprint(s["why"]), "phase")
		}) {
			t.Errorf("%q does not show", text)
		}
		if at := w.in(); at != "run" {
			t.Errorf("%q leads to %s", text, at)
		}
	}
	if r := w.root("rm", "/etc/agent-init/phase"); r.Code != 0 {
		t.Fatal(r)
	}
	if !eventually(lab.Patience, func() bool { _, code := w.status(); return code == 0 }) {
		t.Error("the fault of the file outlives it")
	}

	// Files that are wrong, of whichever phase, leave what is in force, and hold no change up.
	must(t, w.box.WriteFile("/etc/agent-init/phases/verify/more.yaml", []byte("user: root\n"), 0o644))
	w.refuses(78, []string{"reload"}, "phases/verify/more.yaml:1")
	w.phase("verify")
	w.works("resolve", "ok2.test")
	w.phase("run")

	// What is not proved is sealed, and left by what is.
	must(t, w.box.WriteFile("/etc/agent-init/phases/verify/more.yaml", []byte("domains: [nowhere.test required]\n"), 0o644))
	w.did("reload")
	w.lab.DNS.Unset("nowhere.test")
	r := w.root("agent-init", "phase", "verify", "--json")
	var out struct{ Phase, Was, Fault string }
	if err := json.Unmarshal([]byte(r.Stdout), &out); err != nil || r.Code != 70 || out.Phase != "sealed" || out.Was != "run" || !strings.Contains(out.Fault, "nowhere.test") {
		t.Errorf("what can't be proved: %s", r)
	}
	w.blocked("resolve", "ok.test")
	w.did("reload")
	w.blocked("resolve", "ok.test")
	w.refuses(1, []string{"allow", "ok.test"}, "sealed")
	if s, code := w.status(); code == 0 || !strings.Contains(fmt.Sprint(s["why"]), "sealed between two phases") {
		t.Errorf("it counts as healthy: %v", s["why"])
	}
	w.phase("run")
	w.works("http", "https://ok.test/")
	if s, code := w.status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}

// TestPhaseKilled: a keeper that is killed between two phases leaves a sealed network, and the next one does not begin
// in the set-up again.
func TestPhaseKilled(t *testing.T) {
	l := newLab(t)
	w := startIn(t, l, "ok.test\n", lab.BoxOptions{Files: phases()}, "sleep", "infinity")
	w.mode = "up"
	up := func() {
		t.Helper()
		if r := w.root("agent-init", "up", "--phase", "setup"); r.Code != 0 {
			t.Fatal(r)
		}
	}
	up()
	if at := w.in(); at != "setup" {
		t.Fatalf("it begins in %q", at)
	}
	w.works("resolve", "evil.test")
	w.works("tcp", "45.30.9.9:8443")
	up() // which finds it at work
	change := w.box.ExecStart(lab.Cmd{Args: []string{"agent-init", "phase", "run"}})
	w.audited("the seal", func(e event) bool { return e.Kind == "policy" && strings.HasPrefix(e.Reason, "phase sealed") })
	s, _ := w.status()
	pid := fmt.Sprint(s["keeper"].(map[string]any)["pid"])
	if r := w.root("kill", "-9", pid); r.Code != 0 {
		t.Fatal(r)
	}
	change.Wait(0)
	w.box.ForgetPackets()
	w.blocked("tcp", "45.30.9.9:8443")
	w.sealed(lab.ToAddr("45.30.9.9"))
	up()
	if at := w.in(); at != "run" {
		t.Errorf("after the kill it begins in %q", at)
	}
	w.blocked("resolve", "evil.test")
	w.blocked("tcp", "45.30.9.9:8443")
	w.sealed(lab.ToAddr("45.30.9.9"))
	w.works("http", "https://ok.test/")
}

// TestPhaseModes: a sidecar and a gateway have phases as well, and a start that says by file that it is in the set-up.
func TestPhaseModes(t *testing.T) {
	t.Run("sidecar", func(t *testing.T) {
		t.Parallel()
		l := newLab(t)
		files := append(phases(), lab.File{Path: "/etc/agent-init/phase", Data: []byte("setup\n")})
		w := startIn(t, l, "ok.test\n", lab.BoxOptions{Files: files}, "agent-init", "sidecar", "--user", fmt.Sprint(lab.AgentUID))
		w.mode = "sidecar"
		w.other = l.NewBox(lab.BoxOptions{Share: w.box, Caps: []string{}, NoNewPrivs: true})
		w.other.Idle()
		w.ready()
		w.works("resolve", "evil.test")
		w.works("tcp", "45.30.9.9:8443")
		must(t, w.box.WriteFile("/etc/agent-init/phase", []byte("run\n"), 0o644))
		if !eventually(lab.Patience, func() bool { return w.in() == "run" }) {
			t.Fatal("the file is not followed")
		}
		w.blocked("resolve", "evil.test")
		w.blocked("tcp", "45.30.9.9:8443")
	})
	t.Run("gateway", func(t *testing.T) {
		t.Parallel()
		l := newLab(t)
		w := startIn(t, l, "ok.test\n", lab.BoxOptions{Gateway: true, Forwards: true, Files: phases()}, "agent-init", "gateway", "--inside", "eth1", "--phase", "setup")
		w.ready()
		k := &kept{world: w}
		k.agent = k.another()
		k.works("tcp", "45.30.9.9:8443")
		w.phase("run")
		w.box.ForgetPackets()
		if p := k.asRoot("tcp", "45.30.9.9:8443"); p.OK {
			t.Errorf("open still: %s", p)
		}
		if p := k.asRoot("resolve", "evil.test"); p.OK {
			t.Errorf("answered still: %s", p)
		}
		w.sealed(lab.ToAddr("45.30.9.9"))
		k.works("resolve", "ok.test")
	})
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		w := startIn(t, newLab(t), "ok.test\n", lab.BoxOptions{}, "agent-init", "run", "--phase", "setup", "--", "echo", "started")
		if r := w.agent.Wait(0); r.Code != 78 || r.Stdout != "" || !strings.Contains(r.Stderr, "phases/setup") {
			t.Errorf("without a phase setup: %s", r)
		}
	})
}
