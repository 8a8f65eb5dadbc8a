package drop

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/pkg/privdrop"
)

// The test binary plays the stage and the agent: it executes itself with a
// role in the environment.
const roleVariable = "PRIVDROP_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(m.Run())
	case "stage":
		os.Exit(stageRole())
	case "confirm":
		os.Exit(confirmRole())
	case "poke":
		pokeRole()
	}
}

// stageRole is what cmd/agent-init does with Exec.
func stageRole() int {
	var spec privdrop.Spec
	if err := json.Unmarshal([]byte(os.Getenv("PRIVDROP_TEST_SPEC")), &spec); err != nil {
		fmt.Println(err)
		return 99
	}
	if spec.ParentPID != 0 {
		spec.ParentPID = os.Getppid()
	}
	err := Exec(spec)
	fmt.Println("exec:", err)
	if failure := (*ExecError)(nil); errors.As(err, &failure) {
		return failure.ExitCode()
	}
	return 70
}

// nobody in the tests: an account that no system has.
var tester = privdrop.Identity{UID: 54321, GID: 54322, Groups: []uint32{54323, 54324}, Name: "tester", Home: "/", Shell: "/bin/sh"}

// stage runs spec in a stage, and returns its output and exit code. Extra
// files go to the stage from descriptor 3 on.
func stage(t testing.TB, wrapper []string, spec privdrop.Spec, extra ...*os.File) (string, int) {
	t.Helper()
	mustrun.Root(t)
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := append(slices.Clone(wrapper), exe)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), roleVariable+"=stage", "PRIVDROP_TEST_SPEC="+string(text))
	cmd.ExtraFiles = extra
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func command(argv ...string) privdrop.Spec {
	return privdrop.Spec{Identity: tester, Argv: argv, Env: []string{"PATH=" + defaultPath}, Dir: "/"}
}

// The end state, as the kernel shows it to the command itself.
func TestKernelEndState(t *testing.T) {
	for _, c := range []struct {
		name string
		id   privdrop.Identity
		// What a container engine may leave to root.
		wrapper []string
	}{
		{"all capabilities", tester, nil},
		{"no groups", privdrop.Identity{UID: 54321, GID: 54322, Name: "tester"}, nil},
		{"the three that it needs", tester, []string{"setpriv", "--bounding-set=-all,+setuid,+setgid,+setpcap", "--inh-caps=-all", "--"}},
		{"no new privileges", tester, []string{"setpriv", "--no-new-privs", "--"}},
		{"ambient capabilities", tester, []string{"setpriv", "--inh-caps=+net_raw,+setuid", "--ambient-caps=+net_raw,+setuid", "--"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := command("cat", "/proc/self/status")
			spec.Identity = c.id
			out, code := stage(t, c.wrapper, spec)
			if code != 0 {
				t.Fatalf("exit %d: %s", code, out)
			}
			if err := parseStatus(out).check(c.id); err != nil {
				t.Error(err)
			}
		})
	}
}

// Without one of its capabilities, Exec starts nothing and names it.
func TestKernelMissingCapability(t *testing.T) {
	for lack, others := range map[string]string{
		"SETUID":  "+setgid,+setpcap",
		"SETGID":  "+setuid,+setpcap",
		"SETPCAP": "+setuid,+setgid",
	} {
		out, code := stage(t, []string{"setpriv", "--bounding-set=-all," + others, "--inh-caps=-all", "--"}, command("echo", "STARTED"))
		if code != 70 || strings.Contains(out, "STARTED") || !strings.Contains(out, "--cap-add="+lack) {
			t.Errorf("without %s: exit %d: %s", lack, code, out)
		}
	}
}

// Nothing is started as an identity that is no drop.
func TestKernelRefusedIdentities(t *testing.T) {
	for _, id := range []privdrop.Identity{
		{UID: 0, GID: 1}, {UID: 1, GID: 0}, {UID: 1, GID: 1, Groups: []uint32{5, 0}}, {UID: 1<<32 - 1, GID: 1}, {UID: 1, GID: 1<<32 - 1}, {},
	} {
		spec := command("echo", "STARTED")
		spec.Identity = id
		if out, code := stage(t, nil, spec); code != 70 || strings.Contains(out, "STARTED") {
			t.Errorf("%+v: exit %d: %s", id, code, out)
		}
	}
}

func TestKernelSurroundings(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	script := `umask; ulimit -c; pwd; env | sort | tr '\n' ' '`
	spec := command("sh", "-c", script)
	spec.Env = append(spec.Env, "AGENT_INIT_SECRET=x", "HOME=/root", "KEPT=yes")
	spec.Dir = "/usr"
	out, code := stage(t, nil, spec, r, w, r)
	if code != 0 || !strings.HasPrefix(out, "0022\n0\n/usr\n") {
		t.Errorf("exit %d: %q", code, out)
	}
	for _, want := range []string{"HOME=/ ", "KEPT=yes", "USER=tester", "LOGNAME=tester", "SHELL=/bin/sh"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in %q", want, out)
		}
	}
	if strings.Contains(out, "SECRET") || strings.Contains(out, "PRIVDROP") {
		t.Errorf("leaks: %q", out)
	}
	spec = command("ls", "/proc/self/fd") // the last is the one that ls reads it by
	for keep, want := range []string{"0\n1\n2\n3\n", "0\n1\n2\n3\n4\n"} {
		spec.KeepFDs = keep
		if out, code := stage(t, nil, spec, r, w, r); code != 0 || out != want {
			t.Errorf("keeping %d: exit %d: %q, want %q", keep, code, out, want)
		}
	}
	spec.KeepFDs = 9
	if out, code := stage(t, nil, spec); code != 70 {
		t.Errorf("keeping what is not there: exit %d: %s", code, out)
	}
}

func TestKernelExitCodes(t *testing.T) {
	dir := open(t)
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, c := range []struct {
		argv []string
		code int
		out  string
	}{
		{[]string{"sh", "-c", "exit 200"}, 200, ""},
		{[]string{"no-such-command"}, 127, ""},
		{[]string{"/no/such/command"}, 127, ""},
		{[]string{"/etc/passwd/x"}, 127, ""},
		{[]string{write("locked", "#!/bin/sh\n", 0o700)}, 126, ""}, // root's alone
		{[]string{write("plain", "#!/bin/sh\n", 0o644)}, 126, ""},
		{[]string{"/usr"}, 126, ""},
		{[]string{write("script", "echo no interpreter $1\n", 0o755), "named"}, 0, "no interpreter named\n"},
		{[]string{write("binary", "\x7fELF\x00\x00\x00", 0o755)}, 126, ""},
		{[]string{write("lost", "#!/no/such/interpreter\n", 0o755)}, 127, ""},
	} {
		out, code := stage(t, nil, command(c.argv...))
		if code != c.code || c.code == 0 && out != c.out {
			t.Errorf("%q: exit %d: %q; want %d", c.argv, code, out, c.code)
		}
	}
}

// open makes a directory that the tester may enter.
func open(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "privdrop")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// E59: a setuid binary gives nothing back.
func TestKernelE59Setuid(t *testing.T) {
	mustrun.Root(t)
	file := filepath.Join(open(t), "id")
	in, err := os.ReadFile("/usr/bin/id")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, in, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o755|os.ModeSetuid|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	// It works where the drop is not in the way, or the test would show nothing.
	plain := exec.Command(file, "-u")
	plain.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: tester.UID, Gid: tester.GID}}
	if out, err := plain.Output(); err != nil || string(out) != "0\n" {
		t.Fatalf("the setuid bit has no effect here: %q, %v", out, err)
	}
	for flag, want := range map[string]uint32{"-u": tester.UID, "-g": tester.GID} {
		out, code := stage(t, nil, command(file, flag))
		if code != 0 || out != strconv.Itoa(int(want))+"\n" {
			t.Errorf("id %s: exit %d: %q", flag, code, out)
		}
	}
}

// poke is one thing that the agent tries.
type poke struct {
	name string
	do   func() error
	// The errnos that count as refused; nil means that it has to work.
	refused []error
	// Only if user namespaces are denied, it is refused.
	strict bool
}

func socket(family, kind, protocol int) func() error {
	return func() error {
		fd, err := unix.Socket(family, kind, protocol)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
}

func raw(nr uintptr, args ...uintptr) func() error {
	return func() error {
		var a [6]uintptr
		copy(a[:], args)
		if _, _, errno := syscall.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
			return errno
		}
		return nil
	}
}

func pokes() []poke {
	eperm, enosys := []error{unix.EPERM}, []error{unix.ENOSYS}
	return []poke{
		{"tcp", socket(unix.AF_INET, unix.SOCK_STREAM, 0), nil, false},
		{"udp6", socket(unix.AF_INET6, unix.SOCK_DGRAM, 0), nil, false},
		{"unix", socket(unix.AF_UNIX, unix.SOCK_STREAM, 0), nil, false},
		{"route netlink", socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE), nil, false},
		{"E56 packet", socket(unix.AF_PACKET, unix.SOCK_RAW, 0x300), eperm, false},
		{"E56 raw icmp", socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP), eperm, false},
		{"E56 raw icmp6", socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6), eperm, false},
		{"E57 vsock", socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0), eperm, false},
		{"netfilter netlink", socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER), eperm, false},
		{"SO_MARK", func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
			if err != nil {
				return nil
			}
			return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, 1)
		}, eperm, false},
		{"setuid 0", raw(unix.SYS_SETUID, 0), eperm, false},
		{"setgid 0", raw(unix.SYS_SETGID, 0), eperm, false},
		{"setresuid 0", raw(unix.SYS_SETRESUID, 0, 0, 0), eperm, false},
		{"keep capabilities", raw(unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1), eperm, false},
		{"securebits", raw(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, 0), eperm, false},
		{"ambient", raw(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_NET_RAW, 0, 0), eperm, false},
		{"unset no_new_privs", raw(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 0), []error{unix.EINVAL}, false},
		{"bpf", raw(unix.SYS_BPF, 0), eperm, false},
		{"keyctl", raw(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, ^uintptr(2), 0), eperm, false},
		{"io_uring", raw(unix.SYS_IO_URING_SETUP, 1, 0), enosys, false},
		{"clone3", raw(unix.SYS_CLONE3, 0, 0), enosys, false},
		{"module", raw(unix.SYS_INIT_MODULE), eperm, false},
		{"kexec", raw(unix.SYS_KEXEC_LOAD), eperm, false},
		{"userfaultfd", raw(unix.SYS_USERFAULTFD), eperm, false},
		{"E66 setns", raw(unix.SYS_SETNS, 0, 0), eperm, false},
		{"E66 open the namespace of PID 1", func() error {
			_, err := os.Open("/proc/1/ns/net")
			return err
		}, []error{unix.EACCES}, false},
		{"E66 network namespace", raw(unix.SYS_UNSHARE, unix.CLONE_NEWNET), eperm, false},
		{"E66 user namespace", func() error {
			cmd := exec.Command("true") // this process has threads, so it is for a child
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
			return cmd.Run()
		}, eperm, true},
		{"E63 ptrace PID 1", raw(unix.SYS_PTRACE, unix.PTRACE_ATTACH, 1), eperm, false},
		{"E63 kill PID 1", raw(unix.SYS_KILL, 1, 0), eperm, false},
		{"E64 environment of PID 1", func() error {
			_, err := os.ReadFile("/proc/1/environ")
			return err
		}, []error{unix.EACCES}, false},
		{"E64 root of PID 1", func() error {
			_, err := os.ReadDir("/proc/1/root/")
			return err
		}, []error{unix.EACCES}, false},
		{"type into the terminal", raw(unix.SYS_IOCTL, 0, unix.TIOCSTI, 0), eperm, false},
	}
}

// pokeRole prints the pokes that did not end as they should.
func pokeRole() {
	strict := len(os.Args) > 1
	for _, p := range pokes() {
		err := p.do()
		switch {
		case p.refused == nil || p.strict && !strict:
			if err != nil {
				fmt.Printf("%s has to work: %v\n", p.name, err)
			}
		case !slices.ContainsFunc(p.refused, func(want error) bool { return errors.Is(err, want) }):
			fmt.Printf("%s has to be refused with %v: %v\n", p.name, p.refused, err)
		}
	}
	fmt.Println("poked", len(pokes()))
}

func TestKernelPokes(t *testing.T) {
	for _, strict := range []bool{false, true} {
		spec := command("/proc/self/exe")
		spec.Env = append(spec.Env, roleVariable+"=poke")
		spec.DenyUserNS, spec.DenyPing = strict, strict
		if strict {
			spec.Argv = append(spec.Argv, "strict")
		}
		out, code := stage(t, nil, spec)
		if want := fmt.Sprintf("poked %d\n", len(pokes())); code != 0 || out != want {
			t.Errorf("user namespaces denied %v: exit %d: %s", strict, code, out)
		}
	}
}

// What agents are made of runs under the strictest filter.
func TestKernelTools(t *testing.T) {
	for name, argv := range map[string][]string{
		"node":    {"node", "-e", `require('os').networkInterfaces(); require('child_process').execSync('true'); setTimeout(() => console.log('fine'), 1)`},
		"python3": {"/usr/bin/python3", "-c", `import subprocess, threading, socket; subprocess.run(["true"], check=True); t = threading.Thread(target=print, args=("fine",)); t.start(); t.join()`},
		"git":     {"sh", "-c", `d=$(mktemp -d) && cd $d && git init -q . && git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x && git gc -q && git log --oneline >/dev/null && rm -rf $d && echo fine`},
		"bash":    {"bash", "-c", `echo a | cat | grep -q a && (sleep 0 & wait) && echo fine`},
		"rg":      {"sh", "-c", `rg -q root /etc/passwd && echo fine`},
	} {
		if _, err := exec.LookPath(name); err != nil {
			t.Logf("%s is not installed here", name)
			continue
		}
		spec := command(argv...)
		spec.DenyUserNS = true
		if out, code := stage(t, nil, spec); code != 0 || out != "fine\n" {
			t.Errorf("%s: exit %d: %s", name, code, out)
		}
	}
}

// confirmRole is a process of ours that serves.
func confirmRole() int {
	if err := Confirm(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestKernelConfirm: a process that the stage has executed sees that it has no privilege, and root does not.
func TestKernelConfirm(t *testing.T) {
	mustrun.Root(t)
	spec := command("/proc/self/exe")
	spec.Env = append(spec.Env, roleVariable+"=confirm")
	if out, code := stage(t, nil, spec); code != 0 {
		t.Errorf("exit %d: %s", code, out)
	}
	if Confirm() == nil {
		t.Error("root confirms that it has no privilege")
	}
}

// The command dies with its parent across the change of credentials.
func TestKernelParentDeath(t *testing.T) {
	mustrun.Root(t)
	spec := command("sh", "-c", "echo ready; exec sleep 1000")
	spec.ParentPID = 1 // stageRole puts the real one in
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	parent := exec.Command("/bin/sh", "-c", `"$0"; true`, exe) // the shell stays the parent
	parent.Env = append(os.Environ(), roleVariable+"=stage", "PRIVDROP_TEST_SPEC="+string(text))
	parent.Stdout = w
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := io.ReadFull(r, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	if _, err := io.ReadAll(r); err != nil { // ends when the command is gone
		t.Fatal(err)
	}
}
