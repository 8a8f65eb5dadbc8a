package process

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
	"github.com/agent-init/agent-init/test/attack/rig"
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
func statuses(t *testing.T, p rig.Inmate) []map[string]string {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.Host))
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
func open(p rig.Inmate, t *testing.T) []string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", p.Host)
	entries, err := os.ReadDir(dir)
	rig.Must(t, err)
	var out []string
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			out = append(out, to)
		}
	}
	return out
}

// TestEachProcessHoldsWhatSecuritySays is the table of SECURITY.md: what each process holds, in a
// container that was given more than agent-init needs. The keeper keeps what it
// uses; what reads hostile bytes has no capability, no way to gain one, and no
// file of the file system open.
func TestEachProcessHoldsWhatSecuritySays(t *testing.T) {
	lab.Require(t)
	caps := append(lab.DefaultCaps(), "NET_RAW", "CHOWN", "FOWNER", "DAC_OVERRIDE", "KILL", "SYS_PTRACE")
	w := rig.StartIn(t, lab.New(t, lab.Options{}), rig.Allowlist, lab.BoxOptions{Caps: caps}, "agent-init", "run", "--session", "always", "--", "sleep", "infinity")
	w.Ready()
	const none = "0000000000000000"
	used := []int{unix.CAP_NET_ADMIN, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_SETPCAP, unix.CAP_KILL}
	keeper := w.Keeper()
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
	if !rig.Eventually(lab.Patience, func() bool { return len(faults()) == 0 }) {
		t.Error(strings.Join(faults(), "\n"))
	}
	guard, server := w.Guard(), sessionServer(w)
	if guard.Uid == server.Uid || guard.Uid == lab.AgentUID || server.Uid == lab.AgentUID {
		t.Errorf("they share a uid: guard %d, session server %d, agent %d", guard.Uid, server.Uid, lab.AgentUID)
	}
	group := "" // the guard's
	for who, p := range map[string]rig.Inmate{"the guard": guard, "the session server": server} {
		id := fmt.Sprintf("%[1]d\t%[1]d\t%[1]d\t%[1]d", p.Uid)
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
		p.Undumpable(t, who)
		for _, f := range open(p, t) {
			pathless := strings.HasPrefix(f, "socket:") || strings.HasPrefix(f, "pipe:") || strings.HasPrefix(f, "anon_inode:") || strings.HasPrefix(f, "/memfd:")
			if !pathless && !slices.Contains([]string{"/dev/null", "/dev/ptmx", "/dev/pts/ptmx"}, f) {
				t.Errorf("%s has %s open", who, f)
			}
		}
	}

	// Of the namespaces that the agent may make for its own use, neither can make any.
	agent := inmateOf(w, "sleep infinity")
	if looksAt(t, agent.Host, unix.SYS_UNSHARE) || !looksAt(t, guard.Host, unix.SYS_UNSHARE) || !looksAt(t, server.Host, unix.SYS_UNSHARE) {
		t.Error("guard and session server should have a filter that looks at unshare(2), and the agent one that doesn't")
	}

	// The limit of a guard that was taken over: its uid may ask the DNS servers
	// whatever it likes, and reach nobody else that no name has led to.
	asGuard := fmt.Sprintf("%d:%s", guard.Uid, group)
	if p := w.Box.Poke(0, "as", asGuard, "dns", rig.At(lab.Upstream4, 53), "tunnel.evil.test", "A"); len(w.Lab.Queries("tunnel.evil.test")) == 0 {
		t.Errorf("no longer a limit? say so in SECURITY.md: %s", p)
	}
	for _, as := range []string{asGuard, fmt.Sprint(guard.Uid), fmt.Sprint(server.Uid)} {
		for _, op := range [][]string{{"tcp", "1.1.1.1:443"}, {"udp", "-timeout", "500ms", "1.1.1.1:53"}, {"dns", "-timeout", "500ms", "8.8.8.8:53", "evil.test", "A"}, {"tcp", "45.30.66.6:443"}} {
			p := w.Box.Poke(0, append([]string{"as", as}, op...)...)
			if result, _ := p.Detail["result"].(map[string]any); !p.OK || result["ok"] != false {
				t.Errorf("%s got through: %v: %s", as, op, p)
			}
		}
	}
	w.Sealed(lab.ToAddr("1.1.1.1"))
}

// inmateOf waits for the process with these arguments: ready is before the agent
// has become its command.
func inmateOf(w *rig.World, args string) (found rig.Inmate) {
	w.Helper()
	if !rig.Eventually(20*time.Second, func() bool {
		all := rig.Inmates(w.T, w.Agent)
		i := slices.IndexFunc(all, func(p rig.Inmate) bool { return p.Args == args })
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
	rig.Must(t, unix.PtraceSeize(pid))
	rig.Must(t, unix.PtraceInterrupt(pid))
	_, err := unix.Wait4(pid, nil, unix.WALL, nil)
	rig.Must(t, err)
	defer func() { rig.Must(t, unix.PtraceDetach(pid)) }()
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
	free := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	held := rig.Confine(t, rig.Allowlist, lab.BoxOptions{Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte("user_namespaces: false\n")}}})
	for _, op := range ops {
		free.Works(op...)
		if p := held.Blocked(op...); p.Errno != "EPERM" {
			t.Errorf("%v: %s", op, p)
		}
	}
	held.Works("http", "https://ok.test/")
}

// TestGuardsOwnFilter: the guard has a filter of its own above the one that all
// unprivileged processes start with: no file, no program, no other process.
func TestGuardsOwnFilter(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	status := w.Root("cat", fmt.Sprintf("/proc/%d/status", w.Guard().Pid)).Stdout
	if !strings.Contains(status, "\nSeccomp_filters:\t2\n") {
		t.Errorf("the guard has other filters:\n%s", status)
	}
	w.Works("http", "https://ok.test/")
}
