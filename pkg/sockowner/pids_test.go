package sockowner

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// family says what becomes of pids as a pid namespace fills, whose first process it is.
const family = "family"

// TestKernelPIDs lists the processes of a pid namespace of its own: all of a few, and of many the youngest and the
// oldest, also where there are gaps between them, and when the pids have begun again.
func TestKernelPIDs(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{childVariable + "=" + family}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// fill is the first process of a pid namespace, and of a mount namespace.
func fill() error {
	for _, m := range []struct {
		what, at, kind string
		flags          uintptr
	}{
		{"none", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"proc", "/proc", "proc", 0},
	} {
		if err := unix.Mount(m.what, m.at, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	var born []int // in this order
	bear := func(n int) error {
		for range n {
			cmd := exec.Command("/bin/sleep", "infinity")
			if err := cmd.Start(); err != nil {
				return err
			}
			born = append(born, cmd.Process.Pid)
		}
		return nil
	}
	// from has the next process get that pid, or a higher one.
	from := func(pid int) error {
		return os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0)
	}
	youngest := func() []int {
		all := append([]int{1}, born...)
		slices.Reverse(all)
		return all
	}
	same := func(when string, got, want []int) error {
		if !slices.Equal(got, want) {
			return fmt.Errorf("%s: there are %v\nwant %v", when, got, want)
		}
		return nil
	}

	if err := bear(10); err != nil {
		return err
	}
	for _, most := range []int{11, 12, 100, 10_000} {
		if err := same(fmt.Sprintf("all of a few, %d at most", most), sorted(pids(most)), sorted(youngest())); err != nil {
			return err
		}
	}
	if err := bear(290); err != nil {
		return err
	}
	y := youngest()
	if err := same("of many", pids(80), slices.Concat(y[:60], y[len(y)-20:])); err != nil {
		return err
	}
	for _, next := range []int{5000, 30_000} {
		if err := from(next); err != nil {
			return err
		}
		if err := bear(20); err != nil {
			return err
		}
	}
	y = youngest()
	gapped := pids(40)
	rest := gapped[20:30]
	if err := same("with gaps", slices.Concat(gapped[:20], gapped[30:]), slices.Concat(y[:20], y[len(y)-10:])); err != nil {
		return err
	}
	for i, pid := range rest {
		if !slices.Contains(y[20:len(y)-10], pid) || slices.Contains(rest[:i], pid) {
			return fmt.Errorf("with gaps: %v is not between the youngest and the oldest", rest)
		}
	}
	// The pids begin again, with those that the system does not reserve: alloc_pid in kernel/pid.c.
	if err := from(2000); err != nil {
		return err
	}
	if err := bear(30); err != nil {
		return err
	}
	y = youngest()
	if err := same("begun again", pids(40), slices.Concat(y[:30], y[len(y)-10:])); err != nil {
		return err
	}

	if line, err := os.ReadFile("/proc/loadavg"); err != nil || !bytes.HasSuffix(line, []byte(fmt.Sprintf(" %d\n", lastPID()))) {
		return fmt.Errorf("%q, %v: the last pid was read as %d", line, err, lastPID())
	}
	return nil
}

func sorted(pids []int) []int {
	slices.Sort(pids)
	return pids
}
