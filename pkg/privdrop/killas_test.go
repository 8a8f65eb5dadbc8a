package privdrop

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// TestKillAs signals a process of another uid, and leaves every thread of ours as it was.
func TestKillAs(t *testing.T) {
	mustrun.Root(t)
	threads := func() (all []string) {
		files, _ := filepath.Glob("/proc/self/task/*/status")
		for _, f := range files {
			data, _ := os.ReadFile(f) // it may have ended
			for line := range strings.Lines(string(data)) {
				if strings.HasPrefix(line, "Uid:") || strings.HasPrefix(line, "CapEff:") || strings.HasPrefix(line, "CapPrm:") {
					all = append(all, line)
				}
			}
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	before := threads()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}, Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := killAs(2000, unix.SIGKILL, cmd.Process.Pid); !errors.Is(err, unix.EPERM) {
		t.Errorf("as another: %v", err)
	}
	if err := killAs(1000, unix.SIGKILL, 1, -1, 0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("everybody: %v", err)
	}
	if err := killAs(0, unix.SIGKILL, cmd.Process.Pid); !errors.Is(err, unix.EPERM) {
		t.Errorf("as root: %v", err)
	}
	if err := SignalAs([]int{-cmd.Process.Pid}, unix.SIGKILL); err != nil {
		t.Errorf("%v", err)
	}
	_ = cmd.Wait()
	if st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || st.Signal() != unix.SIGKILL {
		t.Errorf("%v", cmd.ProcessState)
	}
	if err := killAs(1000, unix.SIGKILL, -cmd.Process.Pid); err != nil {
		t.Errorf("when it has ended: %v", err)
	}
	if err := SignalAs([]int{-cmd.Process.Pid, cmd.Process.Pid}, unix.SIGKILL); err != nil {
		t.Errorf("of nobody, when it has ended: %v", err)
	}
	if now := threads(); !slices.Equal(before, now) {
		t.Errorf("threads were %q and are %q", before, now)
	}
}
