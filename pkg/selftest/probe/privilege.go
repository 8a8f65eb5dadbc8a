package probe

import (
	"context"
	"runtime"

	"golang.org/x/sys/unix"
)

// privilegeProbe tries something that only a privileged process can do.
type privilegeProbe struct {
	name, target string
	run          func(context.Context) outcome
}

func privileges() []privilegeProbe {
	return []privilegeProbe{
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
}

// allowed is the outcome of a privileged act that worked.
const allowed = "was allowed"

func makeSocket(domain, kind, proto int) func(context.Context) outcome {
	return func(context.Context) outcome {
		fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, proto)
		if err != nil {
			return refusal(err)
		}
		unix.Close(fd)
		return reachable(allowed)
	}
}

// setMark asks for what needs CAP_NET_ADMIN, or CAP_NET_RAW (socket(7)).
func setMark(context.Context) outcome {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return unknown(err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, 1); err != nil {
		return refusal(err)
	}
	return reachable(allowed)
}

// becomeRoot tries it on one thread, by the bare system call. Should it work,
// that thread is not given back: it ends with the goroutine of this probe.
func becomeRoot(context.Context) outcome {
	runtime.LockOSThread()
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 0, 0, 0); errno != 0 {
		runtime.UnlockOSThread()
		return refusal(errno)
	}
	return reachable(allowed)
}
