package lab_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

const ignoringEnv = "LAB_TEST_IGNORING"

// TestKernelIgnoresNothing: what nohup, or a script's &, has the tests ignore is not ignored in a box, also once the lab
// is closed that was the first to keep it out.
func TestKernelIgnoresNothing(t *testing.T) {
	lab.Require(t)
	if os.Getenv(ignoringEnv) == "" {
		cmd := exec.Command("sh", "-c", `trap "" HUP INT; exec "$@"`, "sh", os.Args[0], "-test.run=^TestKernelIgnoresNothing$")
		cmd.Env = append(os.Environ(), ignoringEnv+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	first, second := lab.New(t, lab.Options{}), lab.New(t, lab.Options{})
	first.Close()
	b := second.NewBox(lab.BoxOptions{})
	asked := lab.Cmd{Args: []string{"grep", "SigIgn", "/proc/self/status"}}
	heard := regexp.MustCompile(`^SigIgn:\t[0-9a-f]{15}[048c]\n$`) // make ignores two of the library's own signals
	if r := b.Run(asked); !heard.MatchString(r.Stdout) {
		t.Errorf("PID 1 ignores %s", r)
	}
	b.Idle()
	if r := b.Exec(asked); !heard.MatchString(r.Stdout) {
		t.Errorf("a command beside it ignores %s", r)
	}
}

const deathEnv = "LAB_TEST_TO_BE_KILLED"

// TestKernelDeath kills a process that has a lab: its boxes must end with it.
func TestKernelDeath(t *testing.T) {
	lab.Require(t)
	if os.Getenv(deathEnv) != "" {
		l := lab.New(t, lab.Options{})
		p := l.NewBox(lab.BoxOptions{}).Idle()
		fmt.Printf("started %d %s\n", p.Pid(), l.CAFile())
		time.Sleep(time.Hour) // the runtime would take an empty select for a deadlock
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestKernelDeath$")
	cmd.Env = append(os.Environ(), deathEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var ca string
	for s := bufio.NewScanner(out); pid == 0 && s.Scan(); {
		if f := strings.Fields(s.Text()); len(f) == 3 && f[0] == "started" {
			ca = f[2]
			if pid, err = strconv.Atoi(f[1]); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // says that it was killed
	if pid == 0 {
		t.Fatal("the child didn't start a box")
	}
	waitFor(t, func() bool {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return err != nil || string(comm) != "sleep\n"
	})
	if err := os.RemoveAll(filepath.Dir(ca)); err != nil {
		t.Error(err)
	}
	for _, top := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/cpu"} {
		group := filepath.Join(top, filepath.Base(filepath.Dir(ca))+"-box0")
		waitFor(t, func() bool { err := os.Remove(group); return err == nil || os.IsNotExist(err) })
	}
}
