package drop

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data of the kernel's include/uapi/linux/seccomp.h. Arguments are 64 bits wide, but the
// kernel takes those that are looked at for ints: so does the filter. Both architectures are little-endian.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16
)

// Bits of socket(2)'s type that are no type.
const socketFlags = unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC

// namespaces are the flags of clone(2) that make one.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// refused are the system calls that an agent has no use for, or that would go
// around what the filter and the firewall look at.
var refused = []uint32{
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, // the kernel's keyrings
	unix.SYS_BPF, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, // code in the kernel
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, // another kernel
	unix.SYS_SETNS, unix.SYS_OPEN_BY_HANDLE_AT, // into namespaces and past mounts that were made for others
	unix.SYS_USERFAULTFD, unix.SYS_PERF_EVENT_OPEN, // tools of kernel exploits
}

// absent are refused with ENOSYS, on which programs and libraries fall back.
var absent = []uint32{
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, // its sockets are made without socket(2)
	unix.SYS_CLONE3, // its flags are in memory, where a filter can't see
}

// mounts are of use only in a namespace of one's own.
var mounts = []uint32{
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_OPEN_TREE_ATTR,
}

// seccompFilter is the program that decides on every system call of the agent.
func seccompFilter(denyUserNS, denyPing bool) []unix.SockFilter {
	var p program
	no := deny(unix.EPERM)
	// Calls by another convention, such as int 0x80, have other numbers.
	p.load(dataArch)
	p.unless(jumpEqual, architecture, unix.SECCOMP_RET_KILL_PROCESS)
	p.load(dataNumber)
	if runtime.GOARCH == "amd64" { // x32
		p.when(jumpAtLeast, 0x40000000, deny(unix.ENOSYS))
	}
	p.refuse(refused, unix.EPERM)
	p.refuse(absent, unix.ENOSYS)
	p.call(unix.SYS_SOCKET, socketRules(denyPing))
	p.call(unix.SYS_SOCKETPAIR, func(p *program) {
		p.loadArg(0)
		p.unless(jumpEqual, unix.AF_UNIX, no)
	})
	// Into the input queue of the terminal, and so to what reads it later.
	p.call(unix.SYS_IOCTL, func(p *program) {
		p.loadArg(1)
		p.when(jumpEqual, unix.TIOCSTI, no)
		p.when(jumpEqual, unix.TIOCLINUX, no)
		// Another line discipline, whose module the kernel may load for it. Which one is
		// in memory, where a filter can't see; terminals begin with the usual one.
		p.when(jumpEqual, unix.TIOCSETD, no)
	})
	if denyUserNS {
		p.refuse(mounts, unix.EPERM)
		p.call(unix.SYS_UNSHARE, func(p *program) {
			p.loadArg(0)
			p.when(jumpAnyBit, namespaces|unix.CLONE_NEWTIME, no)
		})
		p.call(unix.SYS_CLONE, func(p *program) {
			p.loadArg(0)
			p.when(jumpAnyBit, namespaces, no)
		})
	}
	p.ret(unix.SECCOMP_RET_ALLOW)
	return p
}

// socketRules lets through unix sockets, TCP (MPTCP too), UDP and ping, and of netlink what lists the interfaces.
// Everything else could reach past the firewall (AF_PACKET, AF_VSOCK), or is surface for nothing. IPPROTO_SMC (Linux
// 6.11) makes a TCP connection of the kernel's own, which no rule knows as the agent's.
func socketRules(denyPing bool) func(*program) {
	return func(p *program) {
		const family, kind, protocol = 0, 1, 2
		no := deny(unix.EPERM)
		p.loadArg(family)
		p.skipUnless(unix.AF_UNIX, func(p *program) { p.ret(unix.SECCOMP_RET_ALLOW) })
		p.skipUnless(unix.AF_NETLINK, func(p *program) {
			p.loadArg(protocol)
			p.unless(jumpEqual, unix.NETLINK_ROUTE, no)
			p.ret(unix.SECCOMP_RET_ALLOW)
		})
		for _, f := range []uint32{unix.AF_INET, unix.AF_INET6} {
			p.skipUnless(f, func(p *program) {
				p.loadArg(kind)
				p.and(^uint32(socketFlags))
				p.skipUnless(unix.SOCK_STREAM, func(p *program) {
					p.loadArg(protocol)
					p.oneOf(0, unix.IPPROTO_TCP, unix.IPPROTO_MPTCP)
				})
				p.unless(jumpEqual, unix.SOCK_DGRAM, no)
				p.loadArg(protocol)
				datagrams := []uint32{0, unix.IPPROTO_UDP}
				if !denyPing {
					datagrams = append(datagrams, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6)
				}
				p.oneOf(datagrams...)
			})
		}
		p.ret(no)
	}
}

// installFilter puts the calling thread under the filter, for good; by SECCOMP_FILTER_FLAG_TSYNC all threads.
func installFilter(filter []unix.SockFilter, flags uintptr) error {
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// With TSYNC the result is the thread that could not follow, if there is one.
	id, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	switch {
	case errno != 0:
		return fmt.Errorf("install the seccomp filter: %w", errno)
	case id != 0:
		return fmt.Errorf("install the seccomp filter: thread %d can't follow", id)
	}
	return nil
}
