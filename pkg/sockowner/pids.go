package sockowner

import (
	"bytes"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// The directory /proc lists processes in the order of their pids, and its position says which is next: proc_pid_readdir
// in fs/proc/base.c, which gVisor follows. So a part of it can be read. With other positions it would be another part.
const (
	positionOfPID = 258     // TGID_OFFSET
	highestPID    = 1 << 22 // PID_MAX_LIMIT of include/linux/threads.h
)

// pids returns at most that many processes. If there are more, a quarter are the oldest, which come last, and the rest
// the youngest. A gap of pids that is wider than what is looked for can have others than the very youngest follow it.
// Each process that is listed costs the kernel an inode, so no more are listed, but some that a buffer has room for.
func pids(most int) (out []int) {
	proc, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(proc)
	fourth := max(1, most/4)
	old := list(proc, 1, highestPID, fourth)
	if len(old) < fourth {
		slices.Reverse(old)
		return old
	}
	first, last := old[len(old)-1]+1, lastPID()
	add := func(from, to int) {
		part := list(proc, from, to, most-len(old)-len(out))
		slices.Reverse(part)
		out = append(out, part...)
	}
	for to, width := last, most-len(old); to >= first; width *= 2 {
		from := max(first, to-width+1)
		add(from, to)
		to = from - 1
	}
	add(max(first, last+1), highestPID) // younger than last, or from before the pids began again
	slices.Reverse(old)
	return append(out, old...)
}

// lastPID is what was given last in the own namespace, to a process or a thread (proc_loadavg(5)); 0 if unknown.
func lastPID() int {
	line, _ := os.ReadFile("/proc/loadavg")
	line = bytes.TrimSpace(line)
	pid, _ := strconv.Atoi(string(line[bytes.LastIndexByte(line, ' ')+1:]))
	return pid
}

// list returns the first of the processes from one pid to another, in order. What was read before an error will do.
func list(proc, from, to, most int) (out []int) {
	if _, err := unix.Seek(proc, int64(positionOfPID+from), unix.SEEK_SET); err != nil {
		return nil
	}
	var entries [1024]byte // some 40 of them
	for len(out) < most {
		n, err := unix.ReadDirent(proc, entries[:])
		if err != nil || n <= 0 {
			break
		}
		_, _, names := unix.ParseDirent(entries[:n], -1, nil)
		for _, name := range names {
			pid, err := strconv.Atoi(name)
			if err != nil || pid < from {
				continue
			}
			if pid > to || len(out) == most {
				return out
			}
			out = append(out, pid)
		}
	}
	return out
}
