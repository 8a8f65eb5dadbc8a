package container

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
)

// What a start takes at its height, and a session beside it. Measured: a start
// without a session had 31 tasks of ours when it was done, and failed with 32. The
// self-test has 48 probes under way, of two sockets each: with 64 files it failed.
const (
	leastTasks = 40
	leastFiles = 128
)

// CheckLimits says which limit is too low before it is met somewhere on the way: the
// Go runtime ends a process that gets no thread, with a traceback in place of a cause.
func CheckLimits(l fault.Launch) error {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && files.Cur < leastFiles {
		return fault.New(fault.Privilege, l.MoreFiles(files.Cur),
			"a process of the container may have %d open files, and agent-init needs %d", files.Cur, leastFiles)
	}
	if room, most, known := roomForTasks("/sys/fs/cgroup"); known && room < leastTasks {
		return fault.New(fault.Privilege, l.MoreTasks(most),
			"the container may have %d processes and threads, which leaves %d, and agent-init needs %d", most, room, leastTasks)
	}
	return nil
}

// roomForTasks is how many more processes and threads the container may have, of how many, by the pids controller
// (Documentation/admin-guide/cgroup-v2.rst) of either version. What is counted already includes this process.
func roomForTasks(root string) (room, most uint64, known bool) {
	number := func(path string) (uint64, bool) {
		data, err := os.ReadFile(path)
		n, bad := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
		return n, err == nil && bad == nil // max: there is no limit
	}
	for _, dir := range []string{root, filepath.Join(root, "pids")} {
		most, limited := number(filepath.Join(dir, "pids.max"))
		used, counted := number(filepath.Join(dir, "pids.current"))
		if limited && counted {
			return most - min(most, used), most, true
		}
	}
	return 0, 0, false
}

// Scarce is the fault of an error that a limit has caused, nil if none has.
func Scarce(l fault.Launch, err error, doing string) *fault.Fault {
	var f *fault.Fault
	switch {
	case errors.As(err, &f): // it knows better
		return nil
	case errors.Is(err, unix.EMFILE):
		var files unix.Rlimit
		_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &files) // 0 is as good
		return fault.New(fault.Rules, l.MoreFiles(files.Cur), "%s: %w", doing, err)
	case errors.Is(err, unix.EAGAIN): // of fork(2), clone(2)
		_, most, _ := roomForTasks("/sys/fs/cgroup")
		return fault.New(fault.Rules, l.MoreTasks(most), "%s: %w", doing, err)
	}
	return nil
}
