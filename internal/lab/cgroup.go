package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// cgroup is the directory of a control group; empty: there is none.
type cgroup string

// newCgroup makes a control group of its own for a box, as a container engine does: the agent runs by SCHED_IDLE, and is to
// give way to its box and not to all that runs on the machine. Where no group can be made, the box is in the lab's.
func newCgroup(name string) (cgroup, error) {
	const top = "/sys/fs/cgroup"
	parent := filepath.Join(top, "cpu")
	if control := filepath.Join(top, "cgroup.subtree_control"); unix.Access(control, unix.W_OK) == nil { // version 2, cgroups(7)
		if err := os.WriteFile(control, []byte("+cpu"), 0); err != nil {
			return "", err
		}
		parent = top
	}
	if unix.Access(parent, unix.W_OK) != nil {
		return "", nil
	}
	dir := filepath.Join(parent, name)
	return cgroup(dir), os.Mkdir(dir, 0o755)
}

// add puts a process that was started there. It is ended if that fails.
func (g cgroup) add(p *os.Process) error {
	if g == "" || p == nil {
		return nil
	}
	err := os.WriteFile(filepath.Join(string(g), "cgroup.procs"), []byte(strconv.Itoa(p.Pid)), 0)
	if err == nil || errors.Is(err, unix.ESRCH) { // it has ended
		return nil
	}
	_ = p.Kill()
	_, _ = p.Wait()
	return fmt.Errorf("control group: %w", err)
}

// remove waits for the last process to leave the group, which is a moment after it has ended.
func (g cgroup) remove() error {
	if g == "" {
		return nil
	}
	for deadline := time.Now().Add(Patience); ; time.Sleep(5 * time.Millisecond) {
		err := unix.Rmdir(string(g))
		if err == nil || time.Now().After(deadline) || err != unix.EBUSY {
			if err != nil {
				return fmt.Errorf("remove %s: %w", g, err)
			}
			return nil
		}
	}
}
