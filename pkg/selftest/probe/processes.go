package probe

import (
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// otherNetworks looks for a process of another network that this one may look into:
// who may read its /proc/PID/ns may trace it as well (ptrace(2)), and so send by it.
// In a container that sees the machine's processes, or another container's, there
// are some. The networks of a sandbox of the agent's own lead nowhere, and are known
// by the user namespace that they belong to, below ours (ioctl_ns(2)).
func otherNetworks(context.Context) outcome {
	var ours, user unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &ours); err != nil {
		return unknown(err)
	}
	if err := unix.Stat("/proc/self/ns/user", &user); err != nil {
		return unknown(err)
	}
	proc, err := os.Open("/proc")
	if err != nil {
		return unknown(err)
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return unknown(err)
	}
	for _, pid := range names {
		if pid[0] < '0' || pid[0] > '9' {
			continue
		}
		if isForeign("/proc/"+pid+"/ns/net", ours, user) {
			comm, _ := os.ReadFile("/proc/" + pid + "/comm") // it may have ended
			return reachable(fmt.Sprintf("may look into process %s (%s)", pid, strings.TrimSpace(string(comm))))
		}
	}
	return blocked("none is seen")
}

// isForeign says whether the network namespace at path can be opened, and is neither
// ours nor made by a process of a user namespace below ours.
func isForeign(path string, ours, user unix.Stat_t) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil { // it has ended, or is none of ours
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Dev == ours.Dev && st.Ino == ours.Ino {
		return false
	}
	owner, err := unix.IoctlRetInt(fd, unix.NS_GET_USERNS)
	if err != nil { // one above ours, or beside it
		return true
	}
	defer unix.Close(owner)
	return unix.Fstat(owner, &st) != nil || st.Dev == user.Dev && st.Ino == user.Ino
}
