package process

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// frame is an Ethernet frame of a type that nobody uses, to everyone.
const frame = "ffffffffffff02000000000188b6" + "6c65616b6c65616b6c65616b6c65616b6c65616b6c65616b6c65616b6c65616b6c65616b6c65616b6c65616b"

func isFrame(p *lab.Packet) bool { return p.EtherType == 0x88b6 }

var _ = rig.Also(TestRawSocketsRefused, rig.OverXtables)

// TestRawSocketsRefused: in a container that has NET_RAW, as engines give it by
// default, neither the agent nor a setuid program gets a socket that goes
// around the OUTPUT hook.
func TestRawSocketsRefused(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{Caps: rig.RawCaps()})
	open := w.Lab.NewBox(lab.BoxOptions{Caps: rig.RawCaps()})
	idle := open.Idle()
	plant(t, open, idle, "/usr/bin/setuid-poke", 0o755|os.ModeSetuid)
	plant(t, w.Box, w.Agent, "/usr/bin/setuid-poke", 0o755|os.ModeSetuid)
	for _, op := range [][]string{
		{"socket", "packet", "raw", "768"},
		{"socket", "packet", "dgram", "768"},
		{"socket", "inet", "raw", "icmp"},
		{"socket", "inet", "raw", "ipraw"},
		{"socket", "inet6", "raw", "icmpv6"},
		{"packet", "eth0", frame},
		{"ping", "-raw", "1.1.1.1"},
		{"rawip", "gre", "1.1.1.1"},
	} {
		r := open.Exec(lab.Cmd{Args: append([]string{"setuid-poke"}, op...), UID: lab.AgentUID})
		if p, err := lab.ParsePoke(r.Stdout); err != nil || !p.OK {
			t.Errorf("proves nothing, fails without confinement too: %v: %s", op, r)
		}
		w.Blocked(op...)
		r = w.Root(append([]string{"agent-init", "exec", "--", "setuid-poke"}, op...)...)
		if p, err := lab.ParsePoke(r.Stdout); err != nil || p.OK {
			t.Errorf("a setuid program got through: %v: %s", op, r)
		}
	}
	if len(open.Packets(isFrame)) == 0 {
		t.Error("proves nothing, the frame does not leave an open box either")
	}
	if p := w.Box.Packets(isFrame); len(p) > 0 {
		t.Errorf("%d frames of the agent's left the box", len(p))
	}
	w.Sealed(lab.ToAddr("1.1.1.1"))
}

var _ = rig.Also(TestSocketFamiliesRefused, rig.OverXtables)

// TestSocketFamiliesRefused: no socket but those of TCP, UDP and unix, and what
// lists the interfaces. The filter answers, whatever the kernel has built in.
func TestSocketFamiliesRefused(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	for _, family := range []string{"vsock", "key", "alg", "xdp", "can", "bluetooth", "tipc", "kcm", "smc", "packet"} {
		for _, typ := range []string{"stream", "dgram", "raw", "seqpacket"} {
			if p := w.Blocked("socket", family, typ, "0"); p.Errno != "EPERM" {
				t.Errorf("%s %s: refused with %s and not by the filter", family, typ, p.Errno)
			}
		}
	}
	for proto := range 23 { // netlink's, NETLINK_ROUTE is 0
		args := []string{"socket", "netlink", "raw", fmt.Sprint(proto)}
		if proto == unix.NETLINK_ROUTE {
			w.Works(args...)
		} else if p := w.Blocked(args...); p.Errno != "EPERM" {
			t.Errorf("netlink %d: refused with %s and not by the filter", proto, p.Errno)
		}
	}
	// A 64-bit argument whose upper half the kernel ignores.
	if p := w.Blocked("syscall", fmt.Sprint(unix.SYS_SOCKET), fmt.Sprint(1<<32|unix.AF_VSOCK), "1", "0"); p.Errno != "EPERM" {
		t.Errorf("vsock with a high bit: %s", p)
	}
	w.Works("socket", "unix", "stream", "0")
	w.Works("socket", "inet", "stream", "tcp")
	w.Works("socket", "inet6", "dgram", "udp")
}

// TestUnixSocketsOfOthersRefused: of the sockets of agent-init the agent can open one
// only, on which it may propose; there is none under an abstract name, and one
// of an engine's that somebody mounted stays root's.
func TestUnixSocketsOfOthersRefused(t *testing.T) {
	dir := t.TempDir()
	engine := filepath.Join(dir, "docker.sock")
	l, err := net.Listen("unix", engine)
	rig.Must(t, err)
	defer l.Close()
	rig.Must(t, os.Chmod(engine, 0o660))
	rig.Must(t, os.Chmod(dir, 0o755))
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{Binds: []lab.Bind{{Source: dir, Target: "/run/engine", Writable: true}}})

	if p := w.Box.Poke(0, "unix", "/run/engine/docker.sock"); !p.OK {
		t.Errorf("proves nothing, root can't connect either: %s", p)
	}
	if p := w.Blocked("unix", "/run/engine/docker.sock"); p.Errno != "EACCES" {
		t.Errorf("the engine's socket: %s", p)
	}
	ours := []string{"/run/agent-init/control.sock", "/run/agent-init/request.sock"}
	got := listeningUnix(t, w)
	for i, name := range got {
		got[i] = strings.TrimSuffix(name, ".new") // the kernel shows the name from before the renaming
	}
	slices.Sort(got)
	if !slices.Equal(got, ours) {
		t.Errorf("these listen on unix sockets: %q, want %q", got, ours)
	}
	for _, path := range ours[:1] {
		if p := w.Blocked("unix", path); p.Errno != "EACCES" {
			t.Errorf("%s: %s", path, p)
		}
	}
	w.Works("unix", ours[1])
	rig.Must(t, w.Box.Net.Do(func() error {
		l, err := net.Listen("unix", "@control")
		if err != nil {
			return err
		}
		defer l.Close()
		if got := listeningUnix(t, w); !slices.Contains(got, "@control") {
			t.Errorf("proves nothing, a listener is not seen: %q", got)
		}
		return nil
	}))
	r := w.Script(`find / -xdev -type s 2>/dev/null; find /run /dev /tmp /var -type s 2>/dev/null`)
	for path := range strings.Lines(r.Stdout) {
		if path = strings.TrimSpace(path); path != "/run/engine/docker.sock" && !slices.Contains(ours, path) {
			t.Errorf("there is a socket, %s", path)
		}
	}
}

// listeningUnix returns the names of the unix sockets of the box's network
// namespace that listen, unnamed ones as "".
func listeningUnix(t *testing.T, w *rig.World) []string {
	t.Helper()
	var out []string
	r := w.Root("cat", "/proc/net/unix")
	for line := range strings.Lines(r.Stdout) {
		// Num RefCount Protocol Flags Type St Inode Path
		f := strings.Fields(line)
		if len(f) < 7 || f[0] == "Num" {
			continue
		}
		const acceptsConnections = "00010000" // __SO_ACCEPTCON
		if f[3] == acceptsConnections {
			out = append(out, strings.Join(f[7:], " "))
		}
	}
	return out
}

// TestSetuidProgramsGainNothing: neither a setuid bit nor capabilities of a file
// give the agent anything.
func TestSetuidProgramsGainNothing(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	open := w.Lab.NewBox(lab.BoxOptions{})
	idle := open.Idle()
	for box, init := range map[*lab.Box]*lab.Process{w.Box: w.Agent, open: idle} {
		plant(t, box, init, "/usr/bin/setuid-poke", 0o755|os.ModeSetuid|os.ModeSetgid)
		plant(t, box, init, "/usr/bin/caps-poke", 0o755, unix.CAP_NET_ADMIN, unix.CAP_SETUID)
	}
	for _, op := range [][]string{{"setuid-poke", "setuid", "0"}, {"setuid-poke", "setgid", "0"}, {"setuid-poke", "nft"},
		{"caps-poke", "setuid", "0"}, {"caps-poke", "nft"}} {
		r := open.Exec(lab.Cmd{Args: op, UID: lab.AgentUID})
		if p, err := lab.ParsePoke(r.Stdout); err != nil || !p.OK {
			t.Errorf("proves nothing, gives no privilege without confinement either: %v: %s", op, r)
		}
		r = w.Root(append([]string{"agent-init", "exec", "--"}, op...)...)
		if r.Code == 126 && op[0] == "caps-poke" {
			continue // the kernel refuses to execute it with less than it asks for
		}
		if p, err := lab.ParsePoke(r.Stdout); err != nil || p.OK {
			t.Errorf("the agent gained a privilege: %v: %s", op, r)
		}
	}
	for _, program := range []string{"poke", "setuid-poke"} {
		r := w.Root("agent-init", "exec", "--", program, "self")
		p, err := lab.ParsePoke(r.Stdout)
		rig.Must(t, err)
		powerless(t, program, p)
	}
}

// powerless fails the test unless the process that a poke saw as itself is as
// the agent has to be.
func powerless(t *testing.T, who string, p lab.Poke) {
	t.Helper()
	status, _ := p.Detail["status"].(map[string]any)
	none := strings.Repeat("0", 16)
	id := fmt.Sprintf("%[1]d\t%[1]d\t%[1]d\t%[1]d", lab.AgentUID)
	for field, want := range map[string]string{
		"Uid": id, "Gid": id, "CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		"NoNewPrivs": "1", "Seccomp": "2",
	} {
		if status[field] != want {
			t.Errorf("%s: %s is %q, want %q", who, field, status[field], want)
		}
	}
	fds, _ := p.Detail["fds"].(map[string]any)
	for fd := range fds {
		if fd > "2" || len(fd) > 1 {
			t.Errorf("%s: inherits descriptor %s, %v", who, fd, fds[fd])
		}
	}
}

// targets are the processes that the agent would like to get at.
func targets(w *rig.World) map[string]rig.Inmate {
	w.Helper()
	p, ok := rig.ReadInmate(w.Agent.Pid())
	if !ok {
		w.Fatal("PID 1 is gone")
	}
	return map[string]rig.Inmate{"PID 1": p, "guard": w.Guard()}
}

// TestNothingOfOursCanBeKilledOrTraced: PID 1 and the guard can't be signalled, stopped,
// traced, written to, robbed of descriptors or starved.
func TestNothingOfOursCanBeKilledOrTraced(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	ops := func(pid int) [][]string {
		p := fmt.Sprint(pid)
		return [][]string{
			{"kill", p, "0"}, {"kill", p, "STOP"}, {"kill", p, "HUP"}, {"kill", p, "TERM"}, {"kill", p, "USR1"}, {"kill", p, "QUIT"}, {"kill", p, "KILL"},
			{"ptrace", p}, {"vmwrite", p}, {"getfd", p, "0"},
			{"syscall", fmt.Sprint(unix.SYS_PRLIMIT64), p, fmt.Sprint(unix.RLIMIT_NOFILE), "0", "0"},
			{"syscall", fmt.Sprint(unix.SYS_SETPRIORITY), "0", p, "19"},
			{"syscall", fmt.Sprint(unix.SYS_MOVE_PAGES), p, "0", "0", "0", "0", "2"},
			{"syscall", fmt.Sprint(unix.SYS_IOPRIO_SET), "1", p, "16384"},
		}
	}
	before := targets(w)
	for who, p := range before {
		for _, op := range ops(p.Pid) {
			if got := w.Blocked(op...); got.Errno != "EPERM" && got.Errno != "EACCES" && got.Errno != "ESRCH" {
				t.Errorf("%s: %v: %s", who, op, got)
			}
		}
	}
	for who, p := range targets(w) {
		if p.Pid != before[who].Pid || p.State == "T" || p.State == "t" {
			t.Errorf("%s was %+v and is %+v", who, before[who], p)
		}
	}
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy after it: %v", s["why"])
	}

	// The same works on a process of one's own, so the tool is no blunt one.
	open := w.Lab.NewBox(lab.BoxOptions{})
	open.Start(lab.Cmd{Args: []string{"sleep", "infinity"}, UID: lab.AgentUID})
	for _, op := range ops(1) {
		if op[0] == "kill" && op[2] != "0" {
			continue // of the last of them the box would end
		}
		if p := open.Poke(lab.AgentUID, op...); !p.OK {
			t.Errorf("proves nothing, does not work on a process of one's own: %v: %s", op, p)
		}
	}
}

// TestProcFilesGiveNothingAway: of PID 1 and the guard nothing can be read or written
// that the kernel guards at all, and the agent has neither agent-init's
// variables nor its descriptors.
func TestProcFilesGiveNothingAway(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{Env: []string{"AGENT_INIT_LOG_LEVEL=info", "AGENT_INIT_X_SERVICE_HOST=secret", "KEY=for-the-agent"}},
		"agent-init", "run", "--", "sh", "-c", "poke self; exec sleep infinity")
	w.Ready()
	ops := func(pid int) [][]string {
		var out [][]string
		for _, name := range []string{"environ", "mem", "maps", "smaps", "auxv", "io", "pagemap", "syscall", "fdinfo/0", "fd/0", "root/etc/passwd", "cwd/etc/passwd", "exe", "ns/net", "map_files"} {
			out = append(out, []string{"read", fmt.Sprintf("/proc/%d/%s", pid, name)})
		}
		for _, name := range []string{"mem", "oom_score_adj", "clear_refs", "uid_map", "timerslack_ns", "root/tmp/leak"} {
			out = append(out, []string{"write", "-data", "1", fmt.Sprintf("/proc/%d/%s", pid, name)})
		}
		return out
	}
	for who, p := range targets(w) {
		for _, op := range ops(p.Pid) {
			if got := w.Blocked(op...); got.Errno != "EACCES" && got.Errno != "EPERM" {
				t.Errorf("%s: %v: %s", who, op, got)
			}
		}
		if r := w.Script(`ls /proc/$1/fd /proc/$1/map_files /proc/$1/ns/ 2>/dev/null; readlink /proc/$1/exe /proc/$1/root /proc/$1/cwd /proc/$1/fd/*`, fmt.Sprint(p.Pid)); strings.Contains(r.Stdout, "/") && !onlyDirs(r.Stdout) {
			t.Errorf("%s: can be listed: %s", who, r)
		}
	}
	// What the agent may look at of its own shows that the files can be read.
	open := w.Lab.NewBox(lab.BoxOptions{})
	open.Start(lab.Cmd{Args: []string{"sleep", "infinity"}, UID: lab.AgentUID})
	for _, name := range []string{"environ", "maps", "smaps", "auxv", "io", "fdinfo/0", "root/etc/passwd", "cwd/etc/passwd", "exe"} {
		if p := open.Poke(lab.AgentUID, "read", "/proc/1/"+name); !p.OK {
			t.Errorf("proves nothing, can't be read of a process of one's own: %s: %s", name, p)
		}
	}

	if !w.Agent.WaitOutput("\n", 0) && w.Agent.Stdout() == "" {
		t.Fatal("the agent said nothing")
	}
	p, err := lab.ParsePoke(w.Agent.Stdout())
	rig.Must(t, err)
	powerless(t, "the agent itself", p)
	env := fmt.Sprint(p.Detail["env"])
	if strings.Contains(env, "AGENT_INIT") || strings.Contains(env, "secret") {
		t.Errorf("the agent has agent-init's variables: %s", env)
	}
	if !strings.Contains(env, "KEY=for-the-agent") || !strings.Contains(env, "HOME=/home/agent") {
		t.Errorf("the agent lacks its own variables: %s", env)
	}
}

// onlyDirs says whether a listing holds nothing but the titles that ls gives to
// directories it can't read.
func onlyDirs(listing string) bool {
	for line := range strings.Lines(listing) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasSuffix(line, ":") {
			return false
		}
	}
	return true
}

// TestNamespacesGainNothing: namespaces of one's own lead nowhere, and those of
// others can't be entered.
func TestNamespacesGainNothing(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	before := rig.Rules(t, w.Box)
	for _, ns := range []string{"net", "mnt", "pid", "user", "uts", "ipc"} {
		for who, p := range targets(w) {
			if got := w.Blocked("setns", fmt.Sprintf("/proc/%d/ns/%s", p.Pid, ns), "tcp", "1.1.1.1:443"); got.Errno != "EACCES" {
				t.Errorf("%s of %s: %s", ns, who, got)
			}
		}
		w.Blocked("setns", "/proc/self/ns/"+ns, "tcp", "1.1.1.1:443")
	}
	inner := func(args ...string) map[string]any {
		t.Helper()
		p := w.Works(args...)
		result, _ := p.Detail["result"].(map[string]any)
		if result == nil {
			t.Fatalf("%v: %s", args, p)
		}
		return result
	}
	for _, op := range [][]string{
		{"user", "tcp", "1.1.1.1:443"}, {"user,mount,pid,ipc,uts", "tcp", "1.1.1.1:443"},
		{"user,net", "tcp", "1.1.1.1:443"}, {"user,net", "udp", "1.1.1.1:53"},
		{"user", "nft"}, {"user", "setuid", "64901"}, {"user", "ping", "-raw", "1.1.1.1"},
		{"user,net", "packet", "lo", frame}, {"user,net", "socket", "packet", "raw", "0"}, {"user", "kill", "1", "STOP"},
	} {
		if r := inner(append([]string{"unshare"}, op...)...); r["ok"] != false {
			t.Errorf("in namespaces of its own the agent got through: %v: %v", op, r)
		}
	}
	// A second interface that leads from a namespace of one's own into the box's.
	w.Script(`unshare -Urn sh -c 'ip link add out type veth peer name leak netns 1'; true`)
	if r := w.Root("ls", "/sys/class/net"); strings.Contains(r.Stdout, "leak") {
		t.Errorf("the agent has added a link: %s", r.Stdout)
	}
	rig.SameRules(t, "from other namespaces", before, rig.Rules(t, w.Box))
	w.Sealed(lab.ToAddr("1.1.1.1"))
}
