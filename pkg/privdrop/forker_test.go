package privdrop

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// forked is what forkerRole tells.
type forked struct {
	Traced   int    // whether the caller could be traced once it has a forker
	Child    string // /proc/self/status of a process that was forked
	Code     int    // how Confirm went there
	Caller   string // of a thread of the caller, while there is the forker
	Thread   string // of the forker's
	Bits     int    // its securebits
	Dumpable int    // of the caller, afterwards
	Open     string // descriptors of the child
	Confirm  string // of the caller, as Confirm sees it
}

// forkerRole forks two processes, and tells of them.
func forkerRole() int {
	var f forked
	inherited, _ := os.Open("/")
	_, _ = unix.FcntlInt(inherited.Fd(), unix.F_SETFD, 0) // as who started agent-init may have left it
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	forker, err := NewForker(Spec{DenyUserNS: true})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	f.Traced, _ = unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	who, err := tester.Credential()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	run := func(env []string, argv ...string) (string, int) {
		r, w, _ := os.Pipe()
		var pid int
		forker.Do(func() {
			status, _ := readStatus()
			f.Thread = fmt.Sprint(map[string]string(status))
			f.Bits, _ = unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
			pid, err = syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Dir: "/", Env: env, Files: []uintptr{0, w.Fd(), 2}, Sys: &syscall.SysProcAttr{Credential: who}})
		})
		w.Close()
		if err != nil {
			return err.Error(), -1
		}
		out := make([]byte, 8192)
		n, _ := r.Read(out)
		var st syscall.WaitStatus
		_, _ = syscall.Wait4(pid, &st, 0, nil)
		return string(out[:n]), st.ExitStatus()
	}
	f.Child, _ = run(nil, "/bin/cat", "/proc/self/status")
	f.Open, _ = run(nil, "/bin/ls", "/proc/self/fd")
	_, f.Code = run([]string{roleVariable + "=confirm"}, "/proc/self/exe")
	f.Dumpable, _ = unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	status, _ := readStatus()
	f.Caller = fmt.Sprint(map[string]string(status))
	f.Confirm = fmt.Sprint(Confirm())
	_ = json.NewEncoder(os.Stdout).Encode(f)
	return 0
}

// TestKernelForker: what is forked has the end state of Exec, as the kernel shows it and as it sees it itself. The forker is
// root all the same, so that nobody may signal it, and nothing has changed for the other threads.
func TestKernelForker(t *testing.T) {
	mustrun.Root(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=forker")
	out, err := cmd.CombinedOutput()
	var f forked
	if err != nil || json.Unmarshal(out, &f) != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if f.Traced != 0 {
		t.Errorf("the caller of a forker is dumpable: %d", f.Traced)
	}
	if err := parseStatus(f.Child).check(tester); err != nil {
		t.Errorf("%v:\n%s", err, f.Child)
	}
	if f.Code != 0 {
		t.Errorf("the child does not confirm it: exit %d", f.Code)
	}
	if f.Bits != securebits || !strings.Contains(f.Thread, "Uid:0 0 0 0") || !strings.Contains(f.Thread, "Seccomp:2") || !strings.Contains(f.Thread, "CapBnd:"+noCapability) {
		t.Errorf("the forker has securebits %#x and %s", f.Bits, f.Thread)
	}
	if strings.Contains(f.Caller, "CapBnd:"+noCapability) || strings.Contains(f.Caller, "Seccomp:2") || !strings.Contains(f.Caller, "NoNewPrivs:0") {
		t.Errorf("the caller has %s", f.Caller)
	}
	if f.Dumpable != 0 {
		t.Errorf("the caller is dumpable: %d", f.Dumpable)
	}
	if got := strings.Fields(f.Open); len(got) != 4 { // ls reads one more
		t.Errorf("the child has the descriptors %q", got)
	}
	if f.Confirm == "<nil>" {
		t.Error("root confirms that it has no privilege")
	}
}

// confirmRole is a process of ours that was forked.
func confirmRole() int {
	if err := Confirm(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestForkerIdentity: nobody becomes root.
func TestForkerIdentity(t *testing.T) {
	for _, id := range []Identity{{}, {UID: 0, GID: 5, Name: "x", Home: "/", Shell: "/"}, {UID: 5, GID: 5, Groups: []uint32{0}, Name: "x", Home: "/", Shell: "/"}} {
		if c, err := id.Credential(); err == nil {
			t.Errorf("%+v: %+v", id, c)
		}
	}
}
