package process

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestModeUp, rig.OverXtables)

// TestModeUp: agent-init up confines what runs already, can be repeated, and
// comes back after its keeper was killed.
func TestModeUp(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{}, "sleep", "infinity")
	// What was there before: a process of the agent's that talks to a server.
	talk := w.Box.ExecStart(lab.Cmd{UID: lab.AgentUID, Args: []string{"poke", "tcp", "-hold", "2m", "-timeout", "1s", "1.1.1.1:7"}})
	if !rig.Eventually(10*time.Second, func() bool { return len(w.Box.Packets(lab.ToAddr("1.1.1.1"))) > 5 }) {
		t.Fatal("proves nothing, an open box does not talk either")
	}
	if p := w.Box.Poke(lab.AgentUID, "tcp", "1.1.1.1:443"); !p.OK {
		t.Fatalf("proves nothing: %s", p)
	}
	up := func(code int, args ...string) lab.Result {
		t.Helper()
		r := w.Root(append([]string{"agent-init", "up"}, args...)...)
		if r.Code != code {
			t.Errorf("up %v: %s", args, r)
		}
		return r
	}
	up(0)
	p, err := lab.ParsePoke(talk.Wait(0).Stdout)
	rig.Must(t, err)
	if p.OK {
		t.Errorf("a connection from before lives on: %s", p)
	}
	before := unchangedIn(w)
	for range 3 {
		up(0)
	}
	for _, uid := range []uint32{0, lab.AgentUID} { // no need for agent-init exec
		w.Box.ForgetPackets()
		for _, op := range [][]string{{"tcp", "1.1.1.1:443"}, {"tcp", "[2606:4700:4700::1111]:443"}, {"udp", "1.1.1.1:443"}, {"resolve", "evil.test"}} {
			if p := w.Box.Poke(uid, op...); p.OK {
				t.Errorf("uid %d got through: %v: %s", uid, op, p)
			}
		}
		if p := w.Box.Poke(uid, "http", "https://ok.test/"); !p.OK {
			t.Errorf("uid %d: %s", uid, p)
		}
		w.UpstreamOnlyOr("ok.test")
	}
	now := unchangedIn(w)
	now.attempts = before.attempts // each up reads the policy again
	if rig.SameRules(t, "three times up", before.rules, now.rules); !maps.Equal(now.targets, before.targets) || now.restarts != before.restarts || now.files != before.files {
		t.Errorf("three times up changed %+v to %+v", before, now)
	}
	rig.Refused(t, up(64, "--no-such-flag"), 64)
	rig.Refused(t, up(64, "--", "true"), 64)

	// A policy that went bad: up says so, and the old one stays.
	rig.Must(t, w.Box.WriteFile("/etc/agent-init/allowlist.txt", []byte("*.com\n"), 0o644))
	if r := up(78); !strings.Contains(r.Stderr, "allowlist.txt:1:1") {
		t.Errorf("does not name the entry: %s", r)
	}
	w.Works("http", "https://ok.test/")
	rig.Must(t, w.Box.WriteFile("/etc/agent-init/allowlist.txt", []byte(rig.Allowlist), 0o644))
	up(0)

	keeper := w.Keeper()
	keeper.Signal(t, unix.SIGKILL)
	if !rig.Eventually(10*time.Second, func() bool { _, code := w.Status(); return code != 0 }) {
		t.Error("healthy without a keeper")
	}
	w.Box.ForgetPackets()
	w.Blocked("tcp", "1.1.1.1:443")
	upstreamOnly(w)
	up(0)
	if now := w.Keeper(); now.Pid == keeper.Pid {
		t.Errorf("the same keeper: %+v", now)
	}
	w.Works("http", "https://ok.test/")
	w.Blocked("tcp", "1.1.1.1:443")
	rig.SameRules(t, "after the keeper's end", shape(before.rules), shape(rig.Rules(t, w.Box)))
}

var _ = rig.Also(TestModeUpFails, rig.OverXtables)

// TestModeUpFails: where up fails the container is shut, not open, and the
// exit code says why.
func TestModeUpFails(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	for list, code := range map[string]int{"missing.test required\n": 70, "*.com\n": 78} {
		w := rig.StartIn(t, l, list, lab.BoxOptions{}, "sleep", "infinity")
		rig.Refused(t, w.Root("agent-init", "up"), code)
		shut(w)
		if _, health := w.Status(); health == 0 {
			t.Error("healthy")
		}
		// Corrected, it works.
		rig.Must(t, w.Box.WriteFile("/etc/agent-init/allowlist.txt", []byte("ok.test\n"), 0o644))
		if r := w.Root("agent-init", "up"); r.Code != 0 {
			t.Errorf("after a correction: %s", r)
		}
		w.Works("http", "https://ok.test/")
		w.Blocked("tcp", "1.1.1.1:443")
	}
	w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{Caps: without("NET_ADMIN")}, "sleep", "infinity")
	rig.Refused(t, w.Root("agent-init", "up"), 77, "NET_ADMIN")
}

var _ = rig.Also(TestModeSidecar, rig.OverXtables)

// TestModeSidecar: one container keeps the network that another, which has no
// capability and no agent-init, shares with it.
func TestModeSidecar(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{}, "agent-init", "sidecar", "--user", "1000")
	agent := l.NewBox(lab.BoxOptions{Share: w.Box, Caps: []string{}, NoNewPrivs: true})
	agent.Idle()
	w.Ready()
	w.Box.ForgetPackets()
	for _, uid := range []uint32{0, lab.AgentUID} {
		if p := agent.Poke(uid, "http", "https://ok.test/"); !p.OK {
			t.Errorf("uid %d: %s", uid, p)
		}
		for _, op := range [][]string{{"tcp", "1.1.1.1:443"}, {"tcp", "[2606:4700:4700::1111]:443"}, {"udp", "1.1.1.1:443"}, {"ping", "1.1.1.1"},
			{"resolve", "evil.test"}, {"dns", "8.8.8.8:53", "evil.test", "A"}, {"socket", "packet", "raw", "768"}} {
			if p := agent.Poke(uid, op...); p.OK {
				t.Errorf("uid %d got through: %v: %s", uid, op, p)
			}
		}
		agent.Poke(uid, "nft")
	}
	w.UpstreamOnlyOr("ok.test")
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
	// The guard's container ends first, as it may in a pod.
	rig.Must(t, w.Agent.Signal(unix.SIGTERM))
	if r := w.Agent.Wait(0); r.Code != 0 && r.Code != 143 {
		t.Errorf("ended with %d: %s", r.Code, r)
	}
	w.Box.ForgetPackets()
	for _, op := range [][]string{{"tcp", "1.1.1.1:443"}, {"resolve", "-timeout", "500ms", "evil.test"}} {
		if p := agent.Poke(lab.AgentUID, op...); p.OK {
			t.Errorf("got through without the guard: %v: %s", op, p)
		}
	}
	shut(w)
	// And comes again.
	w.Agent = w.Box.Start(lab.Cmd{Args: []string{"agent-init", "sidecar", "--user", "1000"}})
	w.Ready()
	if p := agent.Poke(lab.AgentUID, "http", "https://ok.test/"); !p.OK {
		t.Errorf("after the guard's return: %s", p)
	}
	if p := agent.Poke(lab.AgentUID, "tcp", "1.1.1.1:443"); p.OK {
		t.Errorf("after the guard's return: %s", p)
	}
	rig.Refused(t, w.Root("agent-init", "sidecar", "true"), 64)
}

var _ = rig.Also(TestModeSidecarUsers, rig.OverXtables)

// TestModeSidecarUsers: who else lives in the network of a sidecar. Its processes can't be seen, but the
// guard does not take a uid that owns a socket there, nor the one that the agent was said to have. Whoever
// takes the guard's uid after that is not in its group, and is let to nobody either.
func TestModeSidecarUsers(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{}, "sleep", "infinity")
	agent := l.NewBox(lab.BoxOptions{Share: w.Box, Caps: []string{}, NoNewPrivs: true})
	agent.Idle()
	const early, said, guard = 64901, 64902, 64903
	socket := agent.ExecStart(lab.Cmd{UID: early, Args: []string{"poke", "listen", "-for", "1m", "127.0.0.1:7777"}})
	if !rig.Eventually(20*time.Second, func() bool { return agent.Poke(0, "tcp", "127.0.0.1:7777").OK }) {
		t.Fatal("nobody listens")
	}
	w.Agent = w.Box.ExecStart(lab.Cmd{Args: []string{"agent-init", "sidecar", "--user", fmt.Sprint(said)}})
	w.Ready()
	if s, _ := w.Status(); fmt.Sprint(s["guard"].(map[string]any)["uid"]) != fmt.Sprint(guard) {
		t.Errorf("the guard is %v, want uid %d", s["guard"], guard)
	}
	w.Box.ForgetPackets()
	out := [][]string{{"tcp", "1.1.1.1:443"}, {"tcp", "[2606:4700:4700::1111]:443"}, {"udp", "1.1.1.1:443"}, {"ping", "1.1.1.1"}, {"dns", "8.8.8.8:53", "evil.test", "A"}, {"socket", "packet", "raw", "768"}, {"nft"}}
	for _, uid := range []uint32{early, said} {
		for _, op := range append(out, []string{"resolve", "evil.test"}) {
			if p := agent.Poke(uid, op...); p.OK {
				t.Errorf("uid %d got through: %v: %s", uid, op, p)
			}
		}
	}
	shut(w)
	for _, op := range append(out, []string{"resolve", "evil.test"}) {
		if p := agent.Poke(guard, op...); p.OK {
			t.Errorf("with the guard's uid, got through: %v: %s", op, p)
		}
	}
	upstreamOnly(w)
	w.Unasked("evil.test")
	rig.Must(t, socket.Signal(unix.SIGKILL))
}

// TestModeExec: what exec runs is the agent, to the last bit.
func TestModeExec(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{Env: []string{"AGENT_INIT_GRACE=5s", "KEY=for-the-agent"}})
	p := w.Works("self")
	powerless(t, "exec", p)
	env := rig.Values(p, "env")
	for _, v := range []string{"KEY=for-the-agent", "HOME=/home/agent", "USER=agent"} {
		if !slices.Contains(env, v) {
			t.Errorf("the environment lacks %s: %q", v, env)
		}
	}
	if strings.Contains(strings.Join(env, " "), "AGENT_INIT_") {
		t.Errorf("the environment holds agent-init's own: %q", env)
	}
	for command, code := range map[string]int{"exit 5": 5, "kill -TERM $$": 143, "exec /no/such": 127} {
		if r := w.Script(command); r.Code != code {
			t.Errorf("%s: %s", command, r)
		}
	}
	for _, c := range []struct {
		args []string
		code int
	}{{[]string{"exec"}, 64}, {[]string{"exec", "--", "/no/such"}, 127}, {[]string{"exec", "--", "/etc/hosts"}, 126}} {
		rig.Refused(t, w.Root(append([]string{"agent-init"}, c.args...)...), c.code)
	}
	r := w.Box.Exec(lab.Cmd{UID: lab.AgentUID, Args: []string{"agent-init", "exec", "--", "id"}})
	rig.Refused(t, r, 77, "root")
	r = w.Box.Exec(lab.Cmd{Dir: "/workspace", Args: []string{"agent-init", "exec", "--", "sh", "-c", "pwd; touch made; stat -c %u made"}})
	if r.Stdout != "/workspace\n1000\n" {
		t.Errorf("in the workspace: %s", r)
	}
}

// TestModeReports: status, wait and selftest tell everyone the truth.
func TestModeReports(t *testing.T) {
	w := rig.Confine(t, "ok.test required\n", lab.BoxOptions{})
	for _, who := range [][]string{{"agent-init"}, {"agent-init", "exec", "--", "agent-init"}} {
		for _, args := range [][]string{{"status"}, {"status", "--quiet"}, {"status", "--json"}, {"wait", "--timeout", "1s"}, {"selftest"}, {"selftest", "--json"}} {
			r := w.Root(append(slices.Clone(who), args...)...)
			if r.Code != 0 || (r.Stdout == "") != (args[0] == "wait" || args[len(args)-1] == "--quiet") {
				t.Errorf("%v %v: %s", who, args, r)
			}
			if strings.Contains(r.Stdout+r.Stderr, "\x1b") {
				t.Errorf("%v: colours without a terminal: %s", args, r)
			}
		}
	}
	// What the policy requires is not there: the self-test says so, whoever asks for it.
	if r := w.SetPolicy("ok.test required\ngone.test required\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	for _, who := range [][]string{{"agent-init"}, {"agent-init", "exec", "--", "agent-init"}} {
		if r := w.Root(append(slices.Clone(who), "selftest")...); r.Code != 70 || !strings.Contains(r.Stdout, "FAIL") || !strings.Contains(r.Stdout, "gone.test") {
			t.Errorf("a required name that is nowhere: %s", r)
		}
	}

	open := w.Lab.NewBox(lab.BoxOptions{Binary: lab.Binary(t)})
	open.Idle()
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"selftest"}, {"reload"}, {"exec", "--", "true"}} {
		r := open.Exec(lab.Cmd{Args: append([]string{"agent-init"}, args...)})
		rig.Refused(t, r, 1, "has not confined")
	}
	if r := open.Exec(lab.Cmd{Args: []string{"agent-init", "wait", "--timeout", "100ms"}}); r.Code != 70 {
		t.Errorf("wait in an open container: %s", r)
	}
}

var _ = rig.Also(TestModeReload, rig.OverXtables)

// TestModeReload: a changed policy is taken over, a bad one is not, and
// what a narrower one drops is cut.
func TestModeReload(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	w.Lab.DNS.SetAddrs("new.test", "45.30.8.8")
	ok4, _ := rig.Named("ok.test")
	w.Works("http", "https://ok.test/")
	w.Blocked("resolve", "new.test")
	stream := w.Box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", "poke", "tcp", "-hold", "2m", "-timeout", "1s", "45.30.9.9:8443"}})
	if !rig.Eventually(10*time.Second, func() bool { return len(w.Box.Packets(lab.ToAddr("45.30.9.9"))) > 5 }) {
		t.Fatal("the stream does not run")
	}
	before := rig.Rules(t, w.Box)
	for what, list := range map[string]string{"bad entries": "*.com\nok.test\nfoo bar\n", "an unknown preset": "@no-such\n"} {
		r := w.SetPolicy(list)
		rig.Refused(t, r, 78, "allowlist.txt:1:1")
		w.Works("http", "https://ok.test/")
		rig.SameRules(t, what, before, rig.Rules(t, w.Box))
		if s, code := w.Status(); code == 0 || !strings.Contains(fmt.Sprint(s["why"]), "reload") {
			t.Errorf("%s: the status is %d, %v", what, code, s["why"])
		}
	}
	w.Audited("the refused reload", func(e rig.Event) bool { return e.Kind == "policy" && strings.Contains(e.Reason, "reload failed") })
	rig.Must(t, os.Chmod(fmt.Sprintf("/proc/%d/root/etc/agent-init/allowlist.txt", w.Agent.Pid()), 0o666))
	rig.Refused(t, w.Root("agent-init", "reload"), 78, "/etc/agent-init/allowlist.txt")

	if r := w.SetPolicy("new.test\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	p, err := lab.ParsePoke(stream.Wait(0).Stdout)
	rig.Must(t, err)
	if p.OK {
		t.Errorf("a stream to what is no longer allowed lives on: %s", p)
	}
	w.Box.ForgetPackets()
	w.Works("http", "http://new.test/")
	w.Blocked("resolve", "ok.test")
	w.Blocked("tcp", ok4.String()+":443")
	w.Blocked("tcp", "45.30.9.9:8443")
	w.UpstreamOnlyOr("45.30.8.8")
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}

	// While the guard is being replaced, the next one starts with the new policy.
	w.Guard().Signal(t, unix.SIGKILL)
	if r := w.SetPolicy("ok.test\n"); r.Code != 0 {
		t.Fatalf("reload without a guard: %s", r)
	}
	if !rig.Eventually(20*time.Second, func() bool { return w.Poke("http", "https://ok.test/").OK }) {
		t.Error("the new policy does not work")
	}
	w.Blocked("resolve", "new.test")

	// SIGHUP does the same as reload, and is not the agent's.
	rig.Must(t, w.Box.WriteFile("/etc/agent-init/allowlist.txt", []byte("new.test\n"), 0o644))
	rig.Must(t, w.Agent.Signal(unix.SIGHUP))
	if !rig.Eventually(20*time.Second, func() bool { return w.Poke("http", "http://new.test/").OK }) {
		t.Error("SIGHUP does not reload")
	}
}

var _ = rig.Also(TestModeContainers, rig.OverXtables)

// TestModeContainers: the ways in which people harden a container.
func TestModeContainers(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	for name, c := range map[string]struct {
		opts lab.BoxOptions
		log  string
	}{
		"read-only":                    {lab.BoxOptions{ReadOnly: true, Tmpfs: []string{"/tmp"}}, "/dev/shm/agent-init/log/audit.jsonl"},
		"read-only with a tmpfs /run":  {lab.BoxOptions{ReadOnly: true, Tmpfs: []string{"/run", "/tmp"}}, ""},
		"no new privileges":            {lab.BoxOptions{NoNewPrivs: true}, rig.AuditFile},
		"both":                         {lab.BoxOptions{ReadOnly: true, NoNewPrivs: true}, "/dev/shm/agent-init/log/audit.jsonl"},
		"with many capabilities":       {lab.BoxOptions{Caps: []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE", "NET_RAW", "NET_ADMIN", "SYS_CHROOT", "MKNOD", "AUDIT_WRITE", "SETFCAP", "SYS_ADMIN", "SYS_PTRACE", "BPF"}}, rig.AuditFile},
		"with sysctls":                 {lab.BoxOptions{SysctlRW: true}, rig.AuditFile},
		"user-defined network":         {lab.BoxOptions{DockerDNS: true}, rig.AuditFile},
		"read-only, its own tmpfs log": {lab.BoxOptions{ReadOnly: true, Tmpfs: []string{"/var/log/agent-init"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := rig.StartIn(t, l, rig.Allowlist, c.opts, "agent-init", "run", "--", "sleep", "infinity")
			w.Ready()
			powerless(t, name, w.Works("self"))
			w.Works("http", "https://ok.test/")
			w.Blocked("tcp", "1.1.1.1:443")
			w.Blocked("tcp", "[2606:4700:4700::1111]:443")
			w.Blocked("resolve", "evil.test")
			w.Blocked("setuid", "0")
			s, code := w.Status()
			if code != 0 {
				t.Errorf("not healthy: %v", s["why"])
			}
			log, _ := s["audit"].(map[string]any)
			if c.log != "" && log["file"] != c.log {
				t.Errorf("the log is %v", log["file"])
			}
			if !rig.Eventually(lab.Patience, func() bool {
				data, err := w.Box.ReadFile(fmt.Sprint(log["file"]))
				return err == nil && strings.Contains(string(data), "evil.test")
			}) {
				t.Errorf("the log lacks the refusal: %v", log["file"])
			}
			if r := setPolicyOrSkip(w, "ok.test\n"); r.Code != 0 {
				t.Errorf("reload: %s", r)
			}
			w.Guard().Signal(t, unix.SIGKILL)
			if !rig.Eventually(20*time.Second, func() bool { return w.Poke("resolve", "ok.test").OK }) {
				t.Error("the guard does not come again")
			}
			w.Unasked("evil.test")
			rig.Must(t, w.Agent.Signal(unix.SIGTERM))
			if r := w.Agent.Wait(0); r.Code != 143 {
				t.Errorf("ended with %d: %s", r.Code, r)
			}
		})
	}
}

// TestModeNohup: what nohup started reloads all the same, and HUP stays ignored in
// the agent.
func TestModeNohup(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{}, "sh", "-c", "trap '' HUP; exec agent-init run -- sleep infinity")
	w.Ready()
	rig.Must(t, w.Agent.Signal(unix.SIGHUP))
	if r := w.SetPolicy("ok.test\nnew.test\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
	rig.Refused(t, w.SetPolicy("*.com\n"), 78, "allowlist.txt:1:1")
	r := w.Box.Exec(lab.Cmd{UID: lab.AgentUID, Args: []string{"agent-init", "reload"}})
	rig.Refused(t, r, 77, "only root")

	side := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{}, "sh", "-c", "trap '' HUP; exec agent-init sidecar")
	side.Ready()
	side.Lab.DNS.SetAddrs("new.test", "45.30.8.8")
	if p := side.Box.Poke(lab.AgentUID, "resolve", "new.test"); p.OK {
		t.Fatalf("proves nothing: %s", p)
	}
	if r := side.SetPolicy("new.test\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	if p := side.Box.Poke(lab.AgentUID, "resolve", "new.test"); !p.OK {
		t.Errorf("the new policy does not work: %s", p)
	}
}

// setPolicyOrSkip is setPolicy where the file can be written, else a reload.
func setPolicyOrSkip(w *rig.World, list string) lab.Result {
	w.Helper()
	_ = w.Box.WriteFile("/etc/agent-init/allowlist.txt", []byte(list), 0o644)
	return w.Root("agent-init", "reload")
}

// TestModeQuiet: a start with the recommended options has nothing to say.
func TestModeQuiet(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{NoNewPrivs: true})
	w.Works("http", "https://ok.test/")
	w.Blocked("tcp", "1.1.1.1:443")
	if said := w.Agent.Stdout() + w.Agent.Stderr(); said != "" {
		t.Errorf("agent-init said: %s", said)
	}
}

// TestModeUsers: who the agent is.
func TestModeUsers(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	workspace := func(uid int) []lab.File {
		return []lab.File{{Path: "/workspace", Dir: true, UID: uid, GID: uid}}
	}
	mounted := []string{"/workspace"} // else it is the image's own, and says nothing about who works in it
	caps := append(lab.DefaultCaps(), "CHOWN", "DAC_OVERRIDE", "FOWNER")
	for name, c := range map[string]struct {
		opts  lab.BoxOptions
		flags []string
		want  string // uid gid home
	}{
		"the image's":                   {want: "1000 1000 /home/agent"},
		"by HOST_UID":                   {opts: lab.BoxOptions{Env: []string{"HOST_UID=1234", "HOST_GID=4321"}}, want: "1234 4321 /home/agent"},
		"by HOST_UID, account changed":  {opts: lab.BoxOptions{Caps: caps, Env: []string{"HOST_UID=1234", "HOST_GID=4321"}}, want: "1234 4321 /home/agent"},
		"by the workspace":              {opts: lab.BoxOptions{Tmpfs: mounted, Files: workspace(1777)}, want: "1777 1777 /home/agent"},
		"HOST_UID before the workspace": {opts: lab.BoxOptions{Tmpfs: mounted, Files: workspace(1777), Env: []string{"HOST_UID=1234"}}, want: "1234 1234 /home/agent"},
		"root's workspace":              {opts: lab.BoxOptions{Tmpfs: mounted, Files: workspace(0)}, want: "1000 1000 /home/agent"},
		"the image's own workspace":     {opts: lab.BoxOptions{Files: workspace(1777)}, want: "1000 1000 /home/agent"},
		"HOST_UID of root":              {opts: lab.BoxOptions{Env: []string{"HOST_UID=0", "HOST_GID=0"}}, want: "1000 1000 /home/agent"},
		"by a flag":                     {flags: []string{"--user", "1500:1600"}, opts: lab.BoxOptions{Env: []string{"HOST_UID=1234"}}, want: "1500 1600 /home/agent"},
		"by name":                       {flags: []string{"--user", "nobody"}, want: "65534 65534 /nonexistent"},
		"by a variable":                 {opts: lab.BoxOptions{Env: []string{"AGENT_INIT_USER=1500"}}, want: "1500 1500 /home/agent"},
		"by the policy":                 {opts: lab.BoxOptions{Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte("user: \"1500\"\n")}}}, want: "1500 1500 /home/agent"},
	} {
		t.Run(name, func(t *testing.T) {
			w := rig.StartIn(t, l, rig.Allowlist, c.opts, append(append([]string{"agent-init", "run"}, c.flags...), "--", "sh", "-c", `echo "$(id -u) $(id -g) $HOME"; exec sleep infinity`)...)
			w.Ready()
			if !rig.Eventually(10*time.Second, func() bool { return strings.HasSuffix(w.Agent.Stdout(), "\n") }) || strings.TrimSpace(w.Agent.Stdout()) != c.want {
				t.Errorf("the agent is %q, want %q", w.Agent.Stdout(), c.want)
			}
			w.Works("http", "https://ok.test/")
			w.Blocked("tcp", "1.1.1.1:443")
			w.Blocked("setuid", "0")
			if slices.Contains(c.opts.Caps, "CHOWN") {
				if r := w.Script("touch ~/made && stat -c %u ~/made && id -un"); r.Stdout != "1234\nagent\n" {
					t.Errorf("the home: %s", r)
				}
			}
		})
	}
}
