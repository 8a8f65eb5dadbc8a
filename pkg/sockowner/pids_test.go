package sockowner

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
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
	debug.SetGCPercent(-1) // a thread that is made meanwhile takes a pid
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
	mostly := func(when string, most, exact int) error {
		y, got := youngest(), pids(most)
		if len(got) != most {
			return fmt.Errorf("%s: there are %d", when, len(got))
		}
		old := most - most/4
		if err := same(when, slices.Concat(got[:exact], got[old:]), slices.Concat(y[:exact], y[len(y)-most/4:])); err != nil {
			return err
		}
		for i, pid := range got[exact:old] {
			if !slices.Contains(y[exact:len(y)-most/4], pid) || slices.Contains(got[exact:exact+i], pid) {
				return fmt.Errorf("%s: %v is not between the youngest and the oldest", when, got[exact:old])
			}
		}
		return nil
	}
	if err := mostly("of many", 80, 40); err != nil {
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
	if err := mostly("with gaps", 40, 15); err != nil {
		return err
	}
	// The pids begin again, with those that the system does not reserve: alloc_pid in kernel/pid.c.
	if err := from(2000); err != nil {
		return err
	}
	if err := bear(30); err != nil {
		return err
	}
	if err := mostly("begun again", 40, 20); err != nil {
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
