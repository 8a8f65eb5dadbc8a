package attack

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// mask is the set of these capabilities, as proc_pid_status(5) writes it.
func mask(caps ...int) string {
	var m uint64
	for _, c := range caps {
		m |= 1 << c
	}
	return fmt.Sprintf("%016x", m)
}

// statuses reads proc_pid_status(5) of each thread of a process.
func statuses(t *testing.T, p inmate) []map[string]string {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.host))
	if err != nil || len(files) == 0 {
		t.Fatalf("no threads of %+v: %v", p, err)
	}
	var out []map[string]string
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		fields := map[string]string{}
		for line := range strings.Lines(string(data)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			fields[name] = strings.TrimSpace(value)
		}
		out = append(out, fields)
	}
	return out
}

// open lists what a process has open.
func (p inmate) open(t *testing.T) []string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", p.host)
	entries, err := os.ReadDir(dir)
	must(t, err)
	var out []string
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			out = append(out, to)
		}
	}
	return out
}

// undumpable fails the test unless the kernel soon keeps others of a process's uid
// from its memory: it gives /proc/PID to root then (proc(5)). A process sees to that
// by itself, right after it was executed; nobody else has its uid.
func (p inmate) undumpable(t *testing.T, who string) {
	t.Helper()
	if !eventually(20*time.Second, func() bool {
		var st unix.Stat_t
		return unix.Stat(fmt.Sprintf("/proc/%d/environ", p.host), &st) == nil && st.Uid == 0
	}) {
		t.Errorf("%s: can be dumped and traced by its own uid", who)
	}
}

// TestEachProcessHoldsWhatSecuritySays is the table of SECURITY.md: what each process holds, in a
// container that was given more than agent-init needs. The keeper keeps what it
// uses; what reads hostile bytes has no capability, no way to gain one, and no
// file of the file system open.
func TestEachProcessHoldsWhatSecuritySays(t *testing.T) {
	lab.Require(t)
	caps := append(lab.DefaultCaps(), "NET_RAW", "CHOWN", "FOWNER", "DAC_OVERRIDE", "KILL", "SYS_PTRACE")
	w := startIn(t, lab.New(t, lab.Options{}), allowlist, lab.BoxOptions{Caps: caps}, "agent-init", "run", "--session", "always", "--", "sleep", "infinity")
	w.ready()
	const none = "0000000000000000"
	used := []int{unix.CAP_NET_ADMIN, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_SETPCAP, unix.CAP_KILL}
	keeper := w.keeper()
	// One thread looks at the agent's open files, with the agent's rights to files and
	// without any capability. It gives them up one by one as it begins.
	faults := func() (out []string) {
		for _, s := range statuses(t, keeper) {
			looks := s["Uid"] == fmt.Sprintf("0\t0\t0\t%d", lab.AgentUID)
			want := mask(used...)
			if looks {
				want = none
			}
			if s["CapEff"] != want || s["CapPrm"] != want || s["CapInh"] != none || s["CapAmb"] != none || !looks && s["Uid"] != "0\t0\t0\t0" {
				out = append(out, fmt.Sprintf("the keeper has a thread with uid %s and the capabilities %s (permitted %s, inheritable %s, ambient %s), want %s",
					s["Uid"], s["CapEff"], s["CapPrm"], s["CapInh"], s["CapAmb"], want))
			}
		}
		return out
	}
	if !eventually(lab.Patience, func() bool { return len(faults()) == 0 }) {
		t.Error(strings.Join(faults(), "\n"))
	}
	guard, server := w.guard(), w.sessionServer()
	if guard.uid == server.uid || guard.uid == lab.AgentUID || server.uid == lab.AgentUID {
		t.Errorf("they share a uid: guard %d, session server %d, agent %d", guard.uid, server.uid, lab.AgentUID)
	}
	group := "" // the guard's
	for who, p := range map[string]inmate{"the guard": guard, "the session server": server} {
		id := fmt.Sprintf("%[1]d\t%[1]d\t%[1]d\t%[1]d", p.uid)
		for _, s := range statuses(t, p) {
			gid := strings.Fields(s["Gid"])
			if slices.Contains(gid, "0") || slices.Contains(gid, fmt.Sprint(lab.AgentUID)) || len(slices.Compact(gid)) != 1 {
				t.Errorf("%s has the groups %q", who, s["Gid"])
			}
			if p == guard {
				group = gid[0]
			}
			for field, want := range map[string]string{"Uid": id, "Groups": "", "CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
				"NoNewPrivs": "1", "Seccomp": "2"} {
				if s[field] != want {
					t.Errorf("%s: %s is %q, want %q", who, field, s[field], want)
				}
			}
		}
		p.undumpable(t, who)
		for _, f := range p.open(t) {
			pathless := strings.HasPrefix(f, "socket:") || strings.HasPrefix(f, "pipe:") || strings.HasPrefix(f, "anon_inode:") || strings.HasPrefix(f, "/memfd:")
			if !pathless && !slices.Contains([]string{"/dev/null", "/dev/ptmx", "/dev/pts/ptmx"}, f) {
				t.Errorf("%s has %s open", who, f)
			}
		}
	}

	// Of the namespaces that the agent may make for its own use, neither can make any.
	agent := w.inmateOf("sleep infinity")
	if looksAt(t, agent.host, unix.SYS_UNSHARE) || !looksAt(t, guard.host, unix.SYS_UNSHARE) || !looksAt(t, server.host, unix.SYS_UNSHARE) {
		t.Error("guard and session server should have a filter that looks at unshare(2), and the agent one that doesn't")
	}

	// The limit of a guard that was taken over: its uid may ask the DNS servers
	// whatever it likes, and reach nobody else that no name has led to.
	asGuard := fmt.Sprintf("%d:%s", guard.uid, group)
	if p := w.box.Poke(0, "as", asGuard, "dns", at(lab.Upstream4, 53), "tunnel.evil.test", "A"); len(w.lab.Queries("tunnel.evil.test")) == 0 {
		t.Errorf("no longer a limit? say so in SECURITY.md: %s", p)
	}
	for _, as := range []string{asGuard, fmt.Sprint(guard.uid), fmt.Sprint(server.uid)} {
		for _, op := range [][]string{{"tcp", "1.1.1.1:443"}, {"udp", "-timeout", "500ms", "1.1.1.1:53"}, {"dns", "-timeout", "500ms", "8.8.8.8:53", "evil.test", "A"}, {"tcp", "45.30.66.6:443"}} {
			p := w.box.Poke(0, append([]string{"as", as}, op...)...)
			if result, _ := p.Detail["result"].(map[string]any); !p.OK || result["ok"] != false {
				t.Errorf("%s got through: %v: %s", as, op, p)
			}
		}
	}
	w.sealed(lab.ToAddr("1.1.1.1"))
}

// inmateOf waits for the process with these arguments: ready is before the agent
// has become its command.
func (w *world) inmateOf(args string) (found inmate) {
	w.Helper()
	if !eventually(20*time.Second, func() bool {
		all := inmates(w.T, w.agent)
		i := slices.IndexFunc(all, func(p inmate) bool { return p.args == args })
		if i >= 0 {
			found = all[i]
		}
		return i >= 0
	}) {
		w.Fatalf("no process %q", args)
	}
	return found
}

// looksAt says whether the seccomp filter of a process compares something with nr.
func looksAt(t *testing.T, pid int, nr uint32) bool {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	must(t, unix.PtraceSeize(pid))
	must(t, unix.PtraceInterrupt(pid))
	_, err := unix.Wait4(pid, nil, unix.WALL, nil)
	must(t, err)
	defer func() { must(t, unix.PtraceDetach(pid)) }()
	const getFilter = 0x420c // PTRACE_SECCOMP_GET_FILTER of ptrace(2)
	n, _, errno := unix.Syscall6(unix.SYS_PTRACE, getFilter, uintptr(pid), 0, 0, 0, 0)
	if errno != 0 || n == 0 {
		t.Fatalf("the filter of %d: %d, %v", pid, n, errno)
	}
	filter := make([]unix.SockFilter, n)
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, getFilter, uintptr(pid), 0, uintptr(unsafe.Pointer(&filter[0])), 0, 0); errno != 0 {
		t.Fatalf("the filter of %d: %v", pid, errno)
	}
	return slices.ContainsFunc(filter, func(i unix.SockFilter) bool { return i.K == nr && i.Code&7 == unix.BPF_JMP })
}

// TestNamespacesHeldShut: an agent that the policy gives no namespaces makes none,
// and mounts nothing; it can do all else.
func TestNamespacesHeldShut(t *testing.T) {
	ops := [][]string{{"unshare", "user", "self"}, {"unshare", "user,net", "self"}, {"unshare", "user,mount,pid", "self"}}
	free := confine(t, allowlist, lab.BoxOptions{})
	held := confine(t, allowlist, lab.BoxOptions{Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte("user_namespaces: false\n")}}})
	for _, op := range ops {
		free.works(op...)
		if p := held.blocked(op...); p.Errno != "EPERM" {
			t.Errorf("%v: %s", op, p)
		}
	}
	held.works("http", "https://ok.test/")
}

// TestGuardsOwnFilter: the guard has a filter of its own above the one that all
// unprivileged processes start with: no file, no program, no other process.
func TestGuardsOwnFilter(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{})
	status := w.root("cat", fmt.Sprintf("/proc/%d/status", w.guard().pid)).Stdout
	if !strings.Contains(status, "\nSeccomp_filters:\t2\n") {
		t.Errorf("the guard has other filters:\n%s", status)
	}
	w.works("http", "https://ok.test/")
}
