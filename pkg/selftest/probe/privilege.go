package probe

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// privileges are what only a privileged process can do.
var privileges = []struct {
	name, target string
	run          attempt
}{
	{"raw-socket", "a raw IPv4 socket", makeSocket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)},
	{"raw-socket", "a raw ICMP socket", makeSocket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)},
	{"raw-socket", "a raw IPv6 socket", makeSocket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_RAW)},
	{"packet-socket", "a packet socket", makeSocket(unix.AF_PACKET, unix.SOCK_DGRAM, 0)},
	{"packet-socket", "a raw packet socket", makeSocket(unix.AF_PACKET, unix.SOCK_RAW, 0)},
	{"vsock-socket", "a socket to the virtual machine's host", makeSocket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)},
	{"net-admin", "a packet mark", setMark},
	{"become-root", "a change to uid 0", becomeRoot},
	{"other-network", "a process of another network", otherNetworks},
}

// judgeAct is the outcome of a privileged act.
func judgeAct(err error) outcome {
	if err != nil {
		return refusal(err)
	}
	return reachable("was allowed")
}

func makeSocket(domain, kind, proto int) attempt {
	return func(context.Context) outcome {
		fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, proto)
		if err == nil {
			unix.Close(fd)
		}
		return judgeAct(err)
	}
}

// setMark asks for what needs CAP_NET_ADMIN, or CAP_NET_RAW (socket(7)).
func setMark(context.Context) outcome {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return unknown(err)
	}
	defer unix.Close(fd)
	return judgeAct(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, 1))
}

// becomeRoot tries it on one thread, by the bare system call. Should it work, that thread is not given back: it ends
// with the goroutine of this probe.
func becomeRoot(context.Context) outcome {
	runtime.LockOSThread()
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 0, 0, 0); errno != 0 {
		runtime.UnlockOSThread()
		return refusal(errno)
	}
	return judgeAct(nil)
}

// otherNetworks looks for a process of another network that this one may look into: who may read its /proc/PID/ns may
// trace it as well (ptrace(2)), and so send by it. In a container that sees the machine's processes, or another
// container's, there are some. The networks of a sandbox of the agent's own lead nowhere, and are known by the user
// namespace that they belong to, below ours (ioctl_ns(2)).
func otherNetworks(context.Context) outcome {
	var ours, user unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &ours); err != nil {
		return unknown(err)
	}
	if err := unix.Stat("/proc/self/ns/user", &user); err != nil {
		return unknown(err)
	}
	proc, err := os.ReadDir("/proc")
	if err != nil {
		return unknown(err)
	}
	for _, entry := range proc {
		pid := entry.Name()
		if pid[0] >= '0' && pid[0] <= '9' && isForeign("/proc/"+pid+"/ns/net", ours, user) {
			comm, _ := os.ReadFile("/proc/" + pid + "/comm") // it may have ended
			return reachable(fmt.Sprintf("may look into process %s (%s)", pid, strings.TrimSpace(string(comm))))
		}
	}
	return blocked("none is seen")
}

// isForeign says whether the network namespace at path can be opened, and is neither ours nor made by a process of a
// user namespace below ours.
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
