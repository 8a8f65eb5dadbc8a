package grants

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// phases are the files of a policy with a set-up and a verification.
func phases() []lab.File {
	return []lab.File{
		{Path: "/etc/agent-init/phases/setup/more.txt", Data: []byte("evil.test\n45.30.9.9:8443\n")},
		{Path: "/etc/agent-init/phases/verify/more.yaml", Data: []byte("domains: [ok2.test]\n")},
	}
}

// in says which phase is in force.
func in(w *rig.World) string {
	w.Helper()
	return strings.TrimSpace(w.Root("agent-init", "phase").Stdout)
}

// TestPhases: what was open for the set-up is cut when the run begins, and refused from then on. Neither the agent nor
// root goes back, whether by command or by file, and what can't be proved ends sealed.
func TestPhases(t *testing.T) {
	l := rig.NewLab(t)
	s := rig.NewStreams()
	for _, host := range []string{"ok.test", "evil.test"} {
		l.Web.Handle(host, s)
	}
	l.DNS.SetAddrs("late.test", "45.30.0.31")
	w := rig.StartIn(t, l, "ok.test\n", lab.BoxOptions{Files: phases()}, "agent-init", "run", "--phase", "setup", "--", "sleep", "infinity")
	w.Ready()
	running := w.Follow(s, "https://ok.test", "https://evil.test")
	hold := w.AsAgent(w.Box, "tcp", "-hold", "10m", "45.30.9.9:8443")
	if !rig.Eventually(lab.Patience, func() bool { return len(w.Box.Packets(lab.ToAddr("45.30.9.9"))) > 3 }) {
		t.Fatalf("the address is not open: %s", hold.Stdout())
	}
	w.Did("allow", "late.test", "--for", "start")
	w.Works("resolve", "late.test")
	if at := in(w); at != "setup" {
		t.Errorf("it begins in %q", at)
	}
	if r := w.AgentRuns("phase", "run"); r.Code != 77 {
		t.Errorf("the agent changes the phase: %s", r)
	}
	for _, path := range []string{"/etc/agent-init/phase", "/etc/agent-init/phases/setup/x.txt", "/var/lib/agent-init/phase/setup"} {
		w.Blocked("write", "-data", "setup", path)
	}

	w.Phase("run")
	for _, u := range []string{"https://evil.test", "https://ok.test"} {
		w.Cut(s, u, running[u], time.Now())
	}
	select {
	case <-hold.Done():
	case <-time.After(lab.Patience):
		t.Error("a flow of the set-up outlives it")
	}
	w.Box.ForgetPackets()
	l.DNS.Forget()
	evil4, _ := rig.Named("evil.test")
	for _, name := range []string{"evil.test", "late.test", "ok2.test"} {
		w.Blocked("resolve", name)
	}
	w.Blocked("tcp", "45.30.9.9:8443")
	w.Blocked("tcp", rig.At(evil4, 443))
	w.Unasked("evil.test", "late.test", "ok2.test")
	w.Sealed(lab.ToAddr("45.30.9.9"))
	w.Sealed(lab.ToAddr(evil4.String()))
	w.Works("http", "https://ok.test/")
	w.Audited("the change", func(e rig.Event) bool {
		return e.Kind == "phase" && e.Verdict == "info" && e.UID != nil && strings.HasPrefix(e.Reason, "from setup to run by a command, proved by ")
	})
	w.Audited("the end of the grant", func(e rig.Event) bool {
		return e.Kind == "grant" && strings.Contains(e.Reason, "ended with the phase setup")
	})

	w.Refuses(1, []string{"phase", "setup"}, "setup comes once")
	w.Phase("verify")
	w.Works("resolve", "ok2.test")
	w.Refuses(1, []string{"phase", "setup"}, "setup comes once")
	w.Phase("run")
	w.Blocked("resolve", "ok2.test")

	// Two at once: each is whole, and the later one holds.
	var both sync.WaitGroup
	for _, to := range []string{"verify", "run"} {
		both.Go(func() { w.Phase(to) })
	}
	both.Wait()
	if at := in(w); at != "verify" && at != "run" {
		t.Errorf("after two at once it is %s", at)
	}

	// The file has the last word, but none that leads back.
	write := func(text string) {
		t.Helper()
		rig.Must(t, w.Box.WriteFile("/etc/agent-init/phase", []byte(text), 0o644))
	}
	write("verify\n")
	if !rig.Eventually(lab.Patience, func() bool { return in(w) == "verify" }) {
		t.Fatal("the file is not followed")
	}
	w.Refuses(1, []string{"phase", "run"}, "/etc/agent-init/phase says verify")
	write("run")
	if !rig.Eventually(lab.Patience, func() bool { return in(w) == "run" }) {
		t.Fatal("the file is not followed")
	}
	for _, text := range []string{"setup", "ru"} {
		write(text)
		if !rig.Eventually(lab.Patience, func() bool {
			s, code := w.Status()
			return code != 0 && strings.Contains(fmt.Sprint(s["why"]), "phase")
		}) {
			t.Errorf("%q does not show", text)
		}
		if at := in(w); at != "run" {
			t.Errorf("%q leads to %s", text, at)
		}
	}
	if r := w.Root("rm", "/etc/agent-init/phase"); r.Code != 0 {
		t.Fatal(r)
	}
	if !rig.Eventually(lab.Patience, func() bool { _, code := w.Status(); return code == 0 }) {
		t.Error("the fault of the file outlives it")
	}

	// Files that are wrong, of whichever phase, leave what is in force, and hold no change up.
	rig.Must(t, w.Box.WriteFile("/etc/agent-init/phases/verify/more.yaml", []byte("user: root\n"), 0o644))
	w.Refuses(78, []string{"reload"}, "phases/verify/more.yaml:1")
	w.Phase("verify")
	w.Works("resolve", "ok2.test")
	w.Phase("run")

	// What is not proved is sealed, and left by what is.
	rig.Must(t, w.Box.WriteFile("/etc/agent-init/phases/verify/more.yaml", []byte("domains: [nowhere.test required]\n"), 0o644))
	w.Did("reload")
	w.Lab.DNS.Unset("nowhere.test")
	r := w.Root("agent-init", "phase", "verify", "--json")
	var out struct{ Phase, Was, Fault string }
	if err := json.Unmarshal([]byte(r.Stdout), &out); err != nil || r.Code != 70 || out.Phase != "sealed" || out.Was != "run" || !strings.Contains(out.Fault, "nowhere.test") {
		t.Errorf("what can't be proved: %s", r)
	}
	w.Blocked("resolve", "ok.test")
	w.Did("reload")
	w.Blocked("resolve", "ok.test")
	w.Refuses(1, []string{"allow", "ok.test"}, "sealed")
	if s, code := w.Status(); code == 0 || !strings.Contains(fmt.Sprint(s["why"]), "sealed between two phases") {
		t.Errorf("it counts as healthy: %v", s["why"])
	}
	w.Phase("run")
	w.Works("http", "https://ok.test/")
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}

// TestPhaseKilled: a keeper that is killed between two phases leaves a sealed network, and the next one does not begin
// in the set-up again.
func TestPhaseKilled(t *testing.T) {
	l := rig.NewLab(t)
	w := rig.StartIn(t, l, "ok.test\n", lab.BoxOptions{Files: phases()}, "sleep", "infinity")
	w.Mode = "up"
	up := func() {
		t.Helper()
		if r := w.Root("agent-init", "up", "--phase", "setup"); r.Code != 0 {
			t.Fatal(r)
		}
	}
	up()
	if at := in(w); at != "setup" {
		t.Fatalf("it begins in %q", at)
	}
	w.Works("resolve", "evil.test")
	w.Works("tcp", "45.30.9.9:8443")
	up() // which finds it at work
	change := w.Box.ExecStart(lab.Cmd{Args: []string{"agent-init", "phase", "run"}})
	w.Audited("the seal", func(e rig.Event) bool { return e.Kind == "policy" && strings.HasPrefix(e.Reason, "phase sealed") })
	s, _ := w.Status()
	pid := fmt.Sprint(s["keeper"].(map[string]any)["pid"])
	if r := w.Root("kill", "-9", pid); r.Code != 0 {
		t.Fatal(r)
	}
	change.Wait(0)
	w.Box.ForgetPackets()
	w.Blocked("tcp", "45.30.9.9:8443")
	w.Sealed(lab.ToAddr("45.30.9.9"))
	up()
	if at := in(w); at != "run" {
		t.Errorf("after the kill it begins in %q", at)
	}
	w.Blocked("resolve", "evil.test")
	w.Blocked("tcp", "45.30.9.9:8443")
	w.Sealed(lab.ToAddr("45.30.9.9"))
	w.Works("http", "https://ok.test/")
}

// TestPhaseModes: a sidecar and a gateway have phases as well, and a start that says by file that it is in the set-up.
func TestPhaseModes(t *testing.T) {
	t.Run("sidecar", func(t *testing.T) {
		t.Parallel()
		l := rig.NewLab(t)
		files := append(phases(), lab.File{Path: "/etc/agent-init/phase", Data: []byte("setup\n")})
		w := rig.StartIn(t, l, "ok.test\n", lab.BoxOptions{Files: files}, "agent-init", "sidecar", "--user", fmt.Sprint(lab.AgentUID))
		w.Mode = "sidecar"
		w.Other = l.NewBox(lab.BoxOptions{Share: w.Box, Caps: []string{}, NoNewPrivs: true})
		w.Other.Idle()
		w.Ready()
		w.Works("resolve", "evil.test")
		w.Works("tcp", "45.30.9.9:8443")
		rig.Must(t, w.Box.WriteFile("/etc/agent-init/phase", []byte("run\n"), 0o644))
		if !rig.Eventually(lab.Patience, func() bool { return in(w) == "run" }) {
			t.Fatal("the file is not followed")
		}
		w.Blocked("resolve", "evil.test")
		w.Blocked("tcp", "45.30.9.9:8443")
	})
	t.Run("gateway", func(t *testing.T) {
		t.Parallel()
		l := rig.NewLab(t)
		w := rig.StartIn(t, l, "ok.test\n", lab.BoxOptions{Gateway: true, Forwards: true, Files: phases()}, "agent-init", "gateway", "--inside", "eth1", "--phase", "setup")
		w.Ready()
		k := &rig.Kept{World: w}
		k.Agent = k.Another()
		k.Works("tcp", "45.30.9.9:8443")
		w.Phase("run")
		w.Box.ForgetPackets()
		if p := k.AsRoot("tcp", "45.30.9.9:8443"); p.OK {
			t.Errorf("open still: %s", p)
		}
		if p := k.AsRoot("resolve", "evil.test"); p.OK {
			t.Errorf("answered still: %s", p)
		}
		w.Sealed(lab.ToAddr("45.30.9.9"))
		k.Works("resolve", "ok.test")
	})
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		w := rig.StartIn(t, rig.NewLab(t), "ok.test\n", lab.BoxOptions{}, "agent-init", "run", "--phase", "setup", "--", "echo", "started")
		if r := w.Agent.Wait(0); r.Code != 78 || r.Stdout != "" || !strings.Contains(r.Stderr, "phases/setup") {
			t.Errorf("without a phase setup: %s", r)
		}
	})
}
