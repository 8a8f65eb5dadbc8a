package process

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestSuggestFollowsNoLink: root writes suggestions, whose names the agent
// has chosen, to a file in the workspace. The agent has planted a link there that
// leads to the policy, which is taken over as soon as it changes.
func TestSuggestFollowsNoLink(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	w.Poke("resolve", "evil.test")
	w.Audited("the refusal", func(e rig.Event) bool { return e.Kind == "dns" && e.Name == "evil.test" })
	if r := w.Script(`cd /workspace && ln -s /etc/agent-init/allowlist.txt a && ln -s /etc/agent-init b && mkfifo c && touch d && ln d e`); r.Code != 0 {
		t.Fatalf("%s", r)
	}
	for _, path := range []string{"/workspace/a", "/workspace/b/allowlist.txt", "/workspace/b/../agent-init/allowlist.txt", "/workspace/c", "/workspace/e"} {
		if r := w.Root("agent-init", "suggest", "--write", path); r.Code == 0 || r.TimedOut {
			t.Errorf("written to %s: %s", path, r)
		}
	}
	if data, err := w.Box.ReadFile("/etc/agent-init/allowlist.txt"); err != nil || string(data) != rig.Allowlist {
		t.Errorf("the policy is now %q, %v", data, err)
	}
	w.Blocked("resolve", "evil.test")
	w.Unasked("evil.test")
	// A file that is none of these is fine.
	if r := w.Root("agent-init", "suggest", "--write", "/tmp/f"); r.Code != 0 {
		t.Errorf("a new file: %s", r)
	}
	if data, err := w.Box.ReadFile("/tmp/f"); err != nil || !strings.Contains(string(data), "evil.test") {
		t.Errorf("the file holds %q, %v", data, err)
	}
}

// TestSessionServerIsOutOfReach: the process that the agent's terminal belongs to is as
// far from the agent as the guard is.
func TestSessionServerIsOutOfReach(t *testing.T) {
	w := session(t)
	server := sessionServer(w)
	pid := fmt.Sprint(server.Pid)
	for _, op := range [][]string{
		{"kill", pid, "0"}, {"kill", pid, "STOP"}, {"kill", pid, "KILL"}, {"ptrace", pid}, {"vmwrite", pid}, {"getfd", pid, "0"}, {"getfd", pid, "3"},
		{"read", "/proc/" + pid + "/environ"}, {"read", "/proc/" + pid + "/maps"}, {"write", "/proc/" + pid + "/mem"}, {"read", "/proc/" + pid + "/root/etc/passwd"},
		{"setns", "/proc/" + pid + "/ns/user", "self"}, {"read", "/proc/" + pid + "/fd/0"}, {"write", "/proc/" + pid + "/oom_score_adj"},
	} {
		if p := w.Blocked(op...); p.Errno != "EPERM" && p.Errno != "EACCES" {
			t.Errorf("%v: %s", op, p)
		}
	}
	if now := sessionServer(w); now.Host != server.Host || now.State == "T" || now.State == "t" {
		t.Errorf("it was %+v and is %+v", server, now)
	}
	// It has no more of the network than the agent.
	for _, op := range [][]string{{"tcp", "1.1.1.1:443"}, {"dns", rig.At(lab.Upstream4, 53), "evil.test", "A"}} {
		if p := w.Box.Poke(server.Uid, op...); p.OK {
			t.Errorf("its uid got through: %v: %s", op, p)
		}
	}
	w.Sealed(lab.ToAddr("1.1.1.1"))
	w.Unasked("evil.test")
}

// TestHoardedConnectionsKeepNobodyOut: connections that say nothing, say half of something, or
// announce more than there may be, keep no person out.
func TestHoardedConnectionsKeepNobodyOut(t *testing.T) {
	w := session(t)
	const socket = "/run/agent-init/session.sock"
	var hoards []*lab.Process
	for _, text := range []string{``, `\x01\xff\xff\xff\xff`, `\xff\xff\xff\xff\xff\xff\xff\xff`, `{`, `\x00\x00\x00\x00`} {
		hoards = append(hoards, w.Launch("poke", "hoard", "-n", "200", "-hold", "6s", "-esc", text, socket))
	}
	for range 10 {
		if r := w.Root("agent-init", "sessions"); r.Code != 0 || !strings.Contains(r.Stdout, "sleep") {
			t.Errorf("root is kept out: %s", r)
		}
	}
	for _, h := range hoards {
		h.Wait(0)
	}
	if r := w.Launch("agent-init", "sessions").Wait(0); r.Code != 0 {
		t.Errorf("the agent is kept out for good: %s", r)
	}
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy after it: %v", s["why"])
	}
}

// session confines a box whose agent is in a session.
func session(t *testing.T) *rig.World {
	t.Helper()
	lab.Require(t)
	w := rig.StartIn(t, lab.New(t, lab.Options{}), rig.Allowlist, lab.BoxOptions{}, "agent-init", "run", "--session", "always", "--", "sleep", "infinity")
	w.Ready()
	if !rig.Eventually(20*time.Second, func() bool { return w.Root("agent-init", "sessions").Code == 0 }) { // what is ready is the network
		t.Fatalf("there is no session: %s", w.Agent.Stderr())
	}
	w.Box.ForgetPackets()
	return w
}

// sessionServer waits for the one session server that there should be.
func sessionServer(w *rig.World) rig.Inmate {
	w.Helper()
	var found []rig.Inmate
	if !rig.Eventually(20*time.Second, func() bool {
		found = slices.DeleteFunc(rig.Inmates(w.T, w.Agent), func(p rig.Inmate) bool { return !strings.HasSuffix(p.Args, "__sessions") })
		return len(found) == 1
	}) {
		w.Fatalf("there are %d session servers: %v", len(found), found)
	}
	return found[0]
}

// TestNamespaceRootIsTheAgentToSockets: who is root in a namespace of its own is the
// agent to the sockets, which ask the kernel.
func TestNamespaceRootIsTheAgentToSockets(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	const control = "/run/agent-init/control.sock"
	if p := w.Box.Poke(0, "unix", control); !p.OK {
		t.Errorf("proves nothing: %s", p)
	}
	p := w.Works("unshare", "user,mount", "unix", control)
	if result, _ := p.Detail["result"].(map[string]any); result["ok"] != false || result["errno"] != "EACCES" {
		t.Errorf("%v", p.Detail)
	}
	for _, verb := range []string{"allow", "deny", "grants", "reload"} {
		p := w.Works("unshare", "user", "unix", "-esc", `{\"verb\":\"`+verb+`\",\"target\":\"evil.test\"}\n`, "/run/agent-init/request.sock")
		result, _ := p.Detail["result"].(map[string]any)
		detail, _ := result["detail"].(map[string]any)
		if strings.Contains(fmt.Sprint(detail["received"]), `"ok":true`) {
			t.Errorf("%s: %v", verb, result)
		}
	}
	w.Blocked("resolve", "evil.test")
	w.Unasked("evil.test")
}

// TestKillAllReachesTheAgentsOwn: a signal to everybody reaches the agent's own.
func TestKillAllReachesTheAgentsOwn(t *testing.T) {
	w := rig.KeepUp(t, rig.Allowlist, lab.BoxOptions{})
	keeper, guard := w.Keeper(), w.Guard()
	for _, sig := range []string{"STOP", "HUP", "USR1", "KILL"} {
		w.Box.Poke(lab.AgentUID, "kill", "--", "-1", sig)
	}
	if k, g := w.Keeper(), w.Guard(); k.Host != keeper.Host || g.Host != guard.Host || k.State == "T" || g.State == "T" {
		t.Errorf("the keeper was %+v and is %+v, the guard was %+v and is %+v", keeper, k, guard, g)
	}
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy after it: %v", s["why"])
	}
	w.Blocked("tcp", "1.1.1.1:443")
	w.Sealed(lab.ToAddr("1.1.1.1"))
}

// TestOddSystemCallsRefused: what goes around sockets, keyrings and namespaces of others
// is refused by the filter, whatever the kernel has built in.
func TestOddSystemCallsRefused(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	for name, errno := range map[string]string{
		"io_uring_setup": "ENOSYS", "keyctl": "EPERM", "add_key": "EPERM", "request_key": "EPERM", "bpf": "EPERM", "perf_event_open": "EPERM",
		"userfaultfd": "EPERM", "init_module": "EPERM", "finit_module": "EPERM", "delete_module": "EPERM", "kexec_load": "EPERM",
		"setns": "EPERM", "open_by_handle_at": "EPERM",
		fmt.Sprint(unix.SYS_CLONE3): "ENOSYS", fmt.Sprint(unix.SYS_IO_URING_ENTER): "ENOSYS", fmt.Sprint(unix.SYS_IO_URING_REGISTER): "ENOSYS",
	} {
		if p := w.Blocked("syscall", name); p.Errno != errno {
			t.Errorf("%s: want %s: %s", name, errno, p)
		}
	}
	// The terminal's input queue, TIOCSTI, with the upper half of the argument set.
	if p := w.Blocked("syscall", fmt.Sprint(unix.SYS_IOCTL), "0", fmt.Sprint(1<<32|unix.TIOCSTI), "0"); p.Errno != "EPERM" {
		t.Errorf("TIOCSTI: %s", p)
	}
}

// TestPlantedStateIsRefused: before up, a program of the agent's takes the places
// where the state would be, where the root file system can't be written.
func TestPlantedStateIsRefused(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	for what, plant := range map[string]string{
		"a link":      "ln -s /home/agent /dev/shm/agent-init",
		"a directory": "mkdir -m 777 /dev/shm/agent-init && echo '{}' >/dev/shm/agent-init/status.json",
	} {
		w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{ReadOnly: true}, "sleep", "infinity")
		if r := w.Box.Exec(lab.Cmd{UID: lab.AgentUID, Args: []string{"sh", "-c", plant}}); r.Code != 0 {
			t.Fatalf("%s: %s", what, r)
		}
		r := w.Root("agent-init", "up")
		if r.Code == 0 {
			t.Errorf("%s: up took it: %s", what, r)
		}
		w.Box.ForgetPackets()
		if p := w.Box.Poke(lab.AgentUID, "tcp", "1.1.1.1:443"); p.OK {
			t.Errorf("%s: open: %s", what, p)
		}
		if r := w.Root("agent-init", "status", "--quiet"); r.Code == 0 {
			t.Errorf("%s: the agent's state is believed", what)
		}
		w.Sealed(lab.ToAddr("1.1.1.1"))
		w.Box.Kill()
	}
}

// TestEnginesExecIsAKnownLimit: a shell that an engine's exec starts as the agent's user
// is not confined by agent-init in its system calls, and the agent may trace it.
// With no-new-privileges for the container it gains nothing by that: the network
// is closed to the shell too, and it has no privilege.
func TestEnginesExecIsAKnownLimit(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{NoNewPrivs: true})
	shell := w.Box.ExecStart(lab.Cmd{UID: lab.AgentUID, Args: []string{"sleep", "infinity"}})
	var pid string
	if !rig.Eventually(10*time.Second, func() bool {
		for _, p := range rig.Inmates(t, w.Agent) {
			if p.Host == shell.Pid() || p.Uid == lab.AgentUID && p.Args == "sleep infinity" && p.Pid > 2 {
				pid = fmt.Sprint(p.Pid)
			}
		}
		return pid != ""
	}) {
		t.Fatal("the shell is not there")
	}
	w.Poke("ptrace", pid) // it may succeed
	plant(t, w.Box, w.Agent, "/usr/bin/setuid-poke", 0o755|os.ModeSetuid)
	for _, op := range [][]string{{"tcp", "1.1.1.1:443"}, {"udp", "1.1.1.1:443"}, {"ping", "-timeout", "300ms", "1.1.1.1"}, {"resolve", "evil.test"},
		{"socket", "packet", "raw", "768"}, {"socket", "inet", "raw", "icmp"}, {"nft"}, {"kill", "1", "0"}, {"setns", "/proc/1/ns/net", "self"},
		{"read", "/proc/1/environ"}, {"write", "/etc/agent-init/allowlist.txt"}, {"unix", "/run/agent-init/control.sock"}} {
		for _, program := range []string{"poke", "setuid-poke"} {
			r := w.Box.Exec(lab.Cmd{UID: lab.AgentUID, Args: append([]string{program}, op...)})
			if p, err := lab.ParsePoke(r.Stdout); err != nil || p.OK {
				t.Errorf("%s %v: %s", program, op, r)
			}
		}
	}
	w.Sealed(lab.ToAddr("1.1.1.1"))
	w.Unasked("evil.test")
	rig.Must(t, shell.Signal(unix.SIGKILL))
}
