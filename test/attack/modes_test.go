package attack

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
)

var _ = also(TestModeUp, overXtables)

// TestModeUp: agent-init up confines what runs already, can be repeated, and
// comes back after its keeper was killed.
func TestModeUp(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w := startIn(t, l, allowlist, lab.BoxOptions{}, "sleep", "infinity")
	// What was there before: a process of the agent's that talks to a server.
	talk := w.box.ExecStart(lab.Cmd{UID: lab.AgentUID, Args: []string{"poke", "tcp", "-hold", "2m", "-timeout", "1s", "1.1.1.1:7"}})
	if !eventually(10*time.Second, func() bool { return len(w.box.Packets(lab.ToAddr("1.1.1.1"))) > 5 }) {
		t.Fatal("proves nothing, an open box does not talk either")
	}
	if p := w.box.Poke(lab.AgentUID, "tcp", "1.1.1.1:443"); !p.OK {
		t.Fatalf("proves nothing: %s", p)
	}
	up := func(code int, args ...string) lab.Result {
		t.Helper()
		r := w.root(append([]string{"agent-init", "up"}, args...)...)
		if r.Code != code {
			t.Errorf("up %v: %s", args, r)
		}
		return r
	}
	up(0)
	p, err := lab.ParsePoke(talk.Wait(0).Stdout)
	must(t, err)
	if p.OK {
		t.Errorf("a connection from before lives on: %s", p)
	}
	before := w.unchanged()
	for range 3 {
		up(0)
	}
	for _, uid := range []uint32{0, lab.AgentUID} { // no need for agent-init exec
		w.box.ForgetPackets()
		for _, op := range [][]string{{"tcp", "1.1.1.1:443"}, {"tcp", "[2606:4700:4700::1111]:443"}, {"udp", "1.1.1.1:443"}, {"resolve", "evil.test"}} {
			if p := w.box.Poke(uid, op...); p.OK {
				t.Errorf("uid %d got through: %v: %s", uid, op, p)
			}
		}
		if p := w.box.Poke(uid, "http", "https://ok.test/"); !p.OK {
			t.Errorf("uid %d: %s", uid, p)
		}
		w.upstreamOnlyOr("ok.test")
	}
	now := w.unchanged()
	now.attempts = before.attempts // each up reads the policy again
	if sameRules(t, "three times up", before.rules, now.rules); !maps.Equal(now.targets, before.targets) || now.restarts != before.restarts || now.files != before.files {
		t.Errorf("three times up changed %+v to %+v", before, now)
	}
	refused(t, up(64, "--no-such-flag"), 64)
	refused(t, up(64, "--", "true"), 64)

	// A policy that went bad: up says so, and the old one stays.
	must(t, w.box.WriteFile("/etc/agent-init/allowlist.txt", []byte("*.com\n"), 0o644))
	if r := up(78); !strings.Contains(r.Stderr, "allowlist.txt:1:1") {
		t.Errorf("does not name the entry: %s", r)
	}
	w.works("http", "https://ok.test/")
	must(t, w.box.WriteFile("/etc/agent-init/allowlist.txt", []byte(allowlist), 0o644))
	up(0)

	keeper := w.keeper()
	keeper.signal(t, unix.SIGKILL)
	if !eventually(10*time.Second, func() bool { _, code := w.status(); return code != 0 }) {
		t.Error("healthy without a keeper")
	}
	w.box.ForgetPackets()
	w.blocked("tcp", "1.1.1.1:443")
	w.upstreamOnly()
	up(0)
	if now := w.keeper(); now.pid == keeper.pid {
		t.Errorf("the same keeper: %+v", now)
	}
	w.works("http", "https://ok.test/")
	w.blocked("tcp", "1.1.1.1:443")
	sameRules(t, "after the keeper's end", shape(before.rules), shape(rules(t, w.box)))
}

// keeper is the process that keeps the rules, as the status has it.
func (w *world) keeper() inmate {
	w.Helper()
	s, _ := w.status()
	k, _ := s["keeper"].(map[string]any)
	for _, p := range inmates(w.T, w.agent) {
		if fmt.Sprint(p.pid) == fmt.Sprint(k["pid"]) {
			return p
		}
	}
	w.Fatalf("no keeper: %v", s)
	return inmate{}
}

var _ = also(TestModeUpFails, overXtables)

// TestModeUpFails: where up fails the container is shut, not open, and the
// exit code says why.
func TestModeUpFails(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	for list, code := range map[string]int{"missing.test required\n": 70, "*.com\n": 78} {
		w := startIn(t, l, list, lab.BoxOptions{}, "sleep", "infinity")
		refused(t, w.root("agent-init", "up"), code)
		w.shut()
		if _, health := w.status(); health == 0 {
			t.Error("healthy")
		}
		// Corrected, it works.
		must(t, w.box.WriteFile("/etc/agent-init/allowlist.txt", []byte("ok.test\n"), 0o644))
		if r := w.root("agent-init", "up"); r.Code != 0 {
			t.Errorf("after a correction: %s", r)
		}
		w.works("http", "https://ok.test/")
		w.blocked("tcp", "1.1.1.1:443")
	}
	w := startIn(t, l, allowlist, lab.BoxOptions{Caps: without("NET_ADMIN")}, "sleep", "infinity")
	refused(t, w.root("agent-init", "up"), 77, "NET_ADMIN")
}

var _ = also(TestModeSidecar, overXtables)

// TestModeSidecar: one container keeps the network that another, which has no
// capability and no agent-init, shares with it.
func TestModeSidecar(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w := startIn(t, l, allowlist, lab.BoxOptions{}, "agent-init", "sidecar", "--user", "1000")
	agent := l.NewBox(lab.BoxOptions{Share: w.box, Caps: []string{}, NoNewPrivs: true})
	agent.Idle()
	w.ready()
	w.box.ForgetPackets()
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
	w.upstreamOnlyOr("ok.test")
	if s, code := w.status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
	// The guard's container ends first, as it may in a pod.
	must(t, w.agent.Signal(unix.SIGTERM))
	if r := w.agent.Wait(0); r.Code != 0 && r.Code != 143 {
		t.Errorf("ended with %d: %s", r.Code, r)
	}
	w.box.ForgetPackets()
	for _, op := range [][]string{{"tcp", "1.1.1.1:443"}, {"resolve", "-timeout", "500ms", "evil.test"}} {
		if p := agent.Poke(lab.AgentUID, op...); p.OK {
			t.Errorf("got through without the guard: %v: %s", op, p)
		}
	}
	w.shut()
	// And comes again.
	w.agent = w.box.Start(lab.Cmd{Args: []string{"agent-init", "sidecar", "--user", "1000"}})
	w.ready()
	if p := agent.Poke(lab.AgentUID, "http", "https://ok.test/"); !p.OK {
		t.Errorf("after the guard's return: %s", p)
	}
	if p := agent.Poke(lab.AgentUID, "tcp", "1.1.1.1:443"); p.OK {
		t.Errorf("after the guard's return: %s", p)
	}
	refused(t, w.root("agent-init", "sidecar", "true"), 64)
}

var _ = also(TestModeSidecarUsers, overXtables)

// TestModeSidecarUsers: who else lives in the network of a sidecar. Its processes can't be seen, but the
// guard does not take a uid that owns a socket there, nor the one that the agent was said to have. Whoever
// takes the guard's uid after that is not in its group, and is let to nobody either.
func TestModeSidecarUsers(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w := startIn(t, l, allowlist, lab.BoxOptions{}, "sleep", "infinity")
	agent := l.NewBox(lab.BoxOptions{Share: w.box, Caps: []string{}, NoNewPrivs: true})
	agent.Idle()
	const early, said, guard = 64901, 64902, 64903
	socket := agent.ExecStart(lab.Cmd{UID: early, Args: []string{"poke", "listen", "-for", "1m", "127.0.0.1:7777"}})
	if !eventually(20*time.Second, func() bool { return agent.Poke(0, "tcp", "127.0.0.1:7777").OK }) {
		t.Fatal("nobody listens")
	}
	w.agent = w.box.ExecStart(lab.Cmd{Args: []string{"agent-init", "sidecar", "--user", fmt.Sprint(said)}})
	w.ready()
	if s, _ := w.status(); fmt.Sprint(s["guard"].(map[string]any)["uid"]) != fmt.Sprint(guard) {
		t.Errorf("the guard is %v, want uid %d", s["guard"], guard)
	}
	w.box.ForgetPackets()
	out := [][]string{{"tcp", "1.1.1.1:443"}, {"tcp", "[2606:4700:4700::1111]:443"}, {"udp", "1.1.1.1:443"}, {"ping", "1.1.1.1"}, {"dns", "8.8.8.8:53", "evil.test", "A"}, {"socket", "packet", "raw", "768"}, {"nft"}}
	for _, uid := range []uint32{early, said} {
		for _, op := range append(out, []string{"resolve", "evil.test"}) {
			if p := agent.Poke(uid, op...); p.OK {
				t.Errorf("uid %d got through: %v: %s", uid, op, p)
			}
		}
	}
	w.shut()
	for _, op := range append(out, []string{"resolve", "evil.test"}) {
		if p := agent.Poke(guard, op...); p.OK {
			t.Errorf("with the guard's uid, got through: %v: %s", op, p)
		}
	}
	w.upstreamOnly()
	w.unasked("evil.test")
	must(t, socket.Signal(unix.SIGKILL))
}

// TestModeExec: what exec runs is the agent, to the last bit.
func TestModeExec(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{Env: []string{"AGENT_INIT_GRACE=5s", "KEY=for-the-agent"}})
	p := w.works("self")
	powerless(t, "exec", p)
	env := values(p, "env")
	for _, v := range []string{"KEY=for-the-agent", "HOME=/home/agent", "USER=agent"} {
		if !slices.Contains(env, v) {
			t.Errorf("the environment lacks %s: %q", v, env)
		}
	}
	if strings.Contains(strings.Join(env, " "), "AGENT_INIT_") {
		t.Errorf("the environment holds agent-init's own: %q", env)
	}
	for command, code := range map[string]int{"exit 5": 5, "kill -TERM $$": 143, "exec /no/such": 127} {
		if r := w.script(command); r.Code != code {
			t.Errorf("%s: %s", command, r)
		}
	}
	for _, c := range []struct {
		args []string
		code int
	}{{[]string{"exec"}, 64}, {[]string{"exec", "--", "/no/such"}, 127}, {[]string{"exec", "--", "/etc/hosts"}, 126}} {
		refused(t, w.root(append([]string{"agent-init"}, c.args...)...), c.code)
	}
	r := w.box.Exec(lab.Cmd{UID: lab.AgentUID, Args: []string{"agent-init", "exec", "--", "id"}})
	refused(t, r, 77, "root")
	r = w.box.Exec(lab.Cmd{Dir: "/workspace", Args: []string{"agent-init", "exec", "--", "sh", "-c", "pwd; touch made; stat -c %u made"}})
	if r.Stdout != "/workspace\n1000\n" {
		t.Errorf("in the workspace: %s", r)
	}
}

// TestModeReports: status, wait and selftest tell everyone the truth.
func TestModeReports(t *testing.T) {
	w := confine(t, "ok.test required\n", lab.BoxOptions{})
	for _, who := range [][]string{{"agent-init"}, {"agent-init", "exec", "--", "agent-init"}} {
		for _, args := range [][]string{{"status"}, {"status", "--quiet"}, {"status", "--json"}, {"wait", "--timeout", "1s"}, {"selftest"}, {"selftest", "--json"}} {
			r := w.root(append(slices.Clone(who), args...)...)
			if r.Code != 0 || (r.Stdout == "") != (args[0] == "wait" || args[len(args)-1] == "--quiet") {
				t.Errorf("%v %v: %s", who, args, r)
			}
			if strings.Contains(r.Stdout+r.Stderr, "\x1b") {
				t.Errorf("%v: colours without a terminal: %s", args, r)
			}
		}
	}
	// What the policy requires is not there: the self-test says so, whoever asks for it.
	if r := w.setPolicy("ok.test required\ngone.test required\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	for _, who := range [][]string{{"agent-init"}, {"agent-init", "exec", "--", "agent-init"}} {
		if r := w.root(append(slices.Clone(who), "selftest")...); r.Code != 70 || !strings.Contains(r.Stdout, "FAIL") || !strings.Contains(r.Stdout, "gone.test") {
			t.Errorf("a required name that is nowhere: %s", r)
		}
	}

	open := w.lab.NewBox(lab.BoxOptions{Binary: lab.Binary(t)})
	open.Idle()
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"selftest"}, {"reload"}, {"exec", "--", "true"}} {
		r := open.Exec(lab.Cmd{Args: append([]string{"agent-init"}, args...)})
		refused(t, r, 1, "has not confined")
	}
	if r := open.Exec(lab.Cmd{Args: []string{"agent-init", "wait", "--timeout", "100ms"}}); r.Code != 70 {
		t.Errorf("wait in an open container: %s", r)
	}
}

var _ = also(TestModeReload, overXtables)

// TestModeReload: a changed policy is taken over, a bad one is not, and
// what a narrower one drops is cut.
func TestModeReload(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{})
	w.lab.DNS.SetAddrs("new.test", "45.30.8.8")
	ok4, _ := named("ok.test")
	w.works("http", "https://ok.test/")
	w.blocked("resolve", "new.test")
	stream := w.box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", "poke", "tcp", "-hold", "2m", "-timeout", "1s", "45.30.9.9:8443"}})
	if !eventually(10*time.Second, func() bool { return len(w.box.Packets(lab.ToAddr("45.30.9.9"))) > 5 }) {
		t.Fatal("the stream does not run")
	}
	before := rules(t, w.box)
	for what, list := range map[string]string{"bad entries": "*.com\nok.test\nfoo bar\n", "an unknown preset": "@no-such\n"} {
		r := w.setPolicy(list)
		refused(t, r, 78, "allowlist.txt:1:1")
		w.works("http", "https://ok.test/")
		sameRules(t, what, before, rules(t, w.box))
		if s, code := w.status(); code == 0 || !strings.Contains(fmt.Sprint(s["why"]), "reload") {
			t.Errorf("%s: the status is %d, %v", what, code, s["why"])
		}
	}
	w.audited("the refused reload", func(e event) bool { return e.Kind == "policy" && strings.Contains(e.Reason, "reload failed") })
	must(t, os.Chmod(fmt.Sprintf("/proc/%d/root/etc/agent-init/allowlist.txt", w.agent.Pid()), 0o666))
	refused(t, w.root("agent-init", "reload"), 78, "/etc/agent-init/allowlist.txt")

	if r := w.setPolicy("new.test\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	p, err := lab.ParsePoke(stream.Wait(0).Stdout)
	must(t, err)
	if p.OK {
		t.Errorf("a stream to what is no longer allowed lives on: %s", p)
	}
	w.box.ForgetPackets()
	w.works("http", "http://new.test/")
	w.blocked("resolve", "ok.test")
	w.blocked("tcp", ok4.String()+":443")
	w.blocked("tcp", "45.30.9.9:8443")
	w.upstreamOnlyOr("45.30.8.8")
	if s, code := w.status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}

	// While the guard is being replaced, the next one starts with the new policy.
	w.guard().signal(t, unix.SIGKILL)
	if r := w.setPolicy("ok.test\n"); r.Code != 0 {
		t.Fatalf("reload without a guard: %s", r)
	}
	if !eventually(20*time.Second, func() bool { return w.poke("http", "https://ok.test/").OK }) {
		t.Error("the new policy does not work")
	}
	w.blocked("resolve", "new.test")

	// SIGHUP does the same as reload, and is not the agent's.
	must(t, w.box.WriteFile("/etc/agent-init/allowlist.txt", []byte("new.test\n"), 0o644))
	must(t, w.agent.Signal(unix.SIGHUP))
	if !eventually(20*time.Second, func() bool { return w.poke("http", "http://new.test/").OK }) {
		t.Error("SIGHUP does not reload")
	}
}

var _ = also(TestModeContainers, overXtables)

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
		"no new privileges":            {lab.BoxOptions{NoNewPrivs: true}, auditFile},
		"both":                         {lab.BoxOptions{ReadOnly: true, NoNewPrivs: true}, "/dev/shm/agent-init/log/audit.jsonl"},
		"with many capabilities":       {lab.BoxOptions{Caps: []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE", "NET_RAW", "NET_ADMIN", "SYS_CHROOT", "MKNOD", "AUDIT_WRITE", "SETFCAP", "SYS_ADMIN", "SYS_PTRACE", "BPF"}}, auditFile},
		"with sysctls":                 {lab.BoxOptions{SysctlRW: true}, auditFile},
		"user-defined network":         {lab.BoxOptions{DockerDNS: true}, auditFile},
		"read-only, its own tmpfs log": {lab.BoxOptions{ReadOnly: true, Tmpfs: []string{"/var/log/agent-init"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := startIn(t, l, allowlist, c.opts, "agent-init", "run", "--", "sleep", "infinity")
			w.ready()
			powerless(t, name, w.works("self"))
			w.works("http", "https://ok.test/")
			w.blocked("tcp", "1.1.1.1:443")
			w.blocked("tcp", "[2606:4700:4700::1111]:443")
			w.blocked("resolve", "evil.test")
			w.blocked("setuid", "0")
			s, code := w.status()
			if code != 0 {
				t.Errorf("not healthy: %v", s["why"])
			}
			log, _ := s["audit"].(map[string]any)
			if c.log != "" && log["file"] != c.log {
				t.Errorf("the log is %v", log["file"])
			}
			if !eventually(lab.Patience, func() bool {
				data, err := w.box.ReadFile(fmt.Sprint(log["file"]))
				return err == nil && strings.Contains(string(data), "evil.test")
			}) {
				t.Errorf("the log lacks the refusal: %v", log["file"])
			}
			if r := w.setPolicyOrSkip("ok.test\n"); r.Code != 0 {
				t.Errorf("reload: %s", r)
			}
			w.guard().signal(t, unix.SIGKILL)
			if !eventually(20*time.Second, func() bool { return w.poke("resolve", "ok.test").OK }) {
				t.Error("the guard does not come again")
			}
			w.unasked("evil.test")
			must(t, w.agent.Signal(unix.SIGTERM))
			if r := w.agent.Wait(0); r.Code != 143 {
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
	w := startIn(t, l, allowlist, lab.BoxOptions{}, "sh", "-c", "trap '' HUP; exec agent-init run -- sleep infinity")
	w.ready()
	must(t, w.agent.Signal(unix.SIGHUP))
	if r := w.setPolicy("ok.test\nnew.test\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	if s, code := w.status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
	refused(t, w.setPolicy("*.com\n"), 78, "allowlist.txt:1:1")
	r := w.box.Exec(lab.Cmd{UID: lab.AgentUID, Args: []string{"agent-init", "reload"}})
	refused(t, r, 77, "only root")

	side := startIn(t, l, allowlist, lab.BoxOptions{}, "sh", "-c", "trap '' HUP; exec agent-init sidecar")
	side.ready()
	side.lab.DNS.SetAddrs("new.test", "45.30.8.8")
	if p := side.box.Poke(lab.AgentUID, "resolve", "new.test"); p.OK {
		t.Fatalf("proves nothing: %s", p)
	}
	if r := side.setPolicy("new.test\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	if p := side.box.Poke(lab.AgentUID, "resolve", "new.test"); !p.OK {
		t.Errorf("the new policy does not work: %s", p)
	}
}

// setPolicyOrSkip is setPolicy where the file can be written, else a reload.
func (w *world) setPolicyOrSkip(list string) lab.Result {
	w.Helper()
	_ = w.box.WriteFile("/etc/agent-init/allowlist.txt", []byte(list), 0o644)
	return w.root("agent-init", "reload")
}

// TestModeQuiet: a start with the recommended options has nothing to say.
func TestModeQuiet(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{NoNewPrivs: true})
	w.works("http", "https://ok.test/")
	w.blocked("tcp", "1.1.1.1:443")
	if said := w.agent.Stdout() + w.agent.Stderr(); said != "" {
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
			w := startIn(t, l, allowlist, c.opts, append(append([]string{"agent-init", "run"}, c.flags...), "--", "sh", "-c", `echo "$(id -u) $(id -g) $HOME"; exec sleep infinity`)...)
			w.ready()
			if !eventually(10*time.Second, func() bool { return strings.HasSuffix(w.agent.Stdout(), "\n") }) || strings.TrimSpace(w.agent.Stdout()) != c.want {
				t.Errorf("the agent is %q, want %q", w.agent.Stdout(), c.want)
			}
			w.works("http", "https://ok.test/")
			w.blocked("tcp", "1.1.1.1:443")
			w.blocked("setuid", "0")
			if slices.Contains(c.opts.Caps, "CHOWN") {
				if r := w.script("touch ~/made && stat -c %u ~/made && id -un"); r.Stdout != "1234\nagent\n" {
					t.Errorf("the home: %s", r)
				}
			}
		})
	}
}
