package privdrop

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data of the kernel's include/uapi/linux/seccomp.h.
// Arguments are 64 bits wide, but those that are looked at are ints to the
// kernel, which ignores their upper half: so does the filter. Both
// architectures are little-endian.
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
var refused = []struct {
	calls []uint32
	errno uintptr
}{
	{ // the kernel's keyrings
		[]uint32{unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL}, uintptr(unix.EPERM)},
	{ // code in the kernel, or another kernel
		[]uint32{unix.SYS_BPF, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
			unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD}, uintptr(unix.EPERM)},
	{ // into namespaces and past mounts that were made for others
		[]uint32{unix.SYS_SETNS, unix.SYS_OPEN_BY_HANDLE_AT}, uintptr(unix.EPERM)},
	{ // tools of kernel exploits
		[]uint32{unix.SYS_USERFAULTFD, unix.SYS_PERF_EVENT_OPEN}, uintptr(unix.EPERM)},
	{ // its sockets are made without socket(2); programs fall back on ENOSYS
		[]uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER}, uintptr(unix.ENOSYS)},
	{ // its flags are in memory, where a filter can't see; libraries fall back to clone
		[]uint32{unix.SYS_CLONE3}, uintptr(unix.ENOSYS)},
}

// mounts are of use only in a namespace of one's own.
var mounts = []uint32{
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	sysOpenTreeAttr,
}

// sysOpenTreeAttr is open_tree_attr of Linux 6.15, the same number everywhere.
const sysOpenTreeAttr = 467

// seccompFilter is the program that decides on every system call of the agent.
func seccompFilter(denyUserNS, denyPing bool) ([]unix.SockFilter, error) {
	var arch uint32
	switch runtime.GOARCH {
	case "amd64":
		arch = unix.AUDIT_ARCH_X86_64
	case "arm64":
		arch = unix.AUDIT_ARCH_AARCH64
	default:
		return nil, errors.New("no seccomp filter for " + runtime.GOARCH)
	}
	var p program
	// Calls by another convention, such as int 0x80, have other numbers.
	p.load(dataArch)
	p.unless(jumpEqual, arch, unix.SECCOMP_RET_KILL_PROCESS)
	p.load(dataNumber)
	if runtime.GOARCH == "amd64" { // x32
		p.when(jumpAtLeast, 0x40000000, deny(uintptr(unix.ENOSYS)))
	}
	for _, r := range refused {
		for _, nr := range r.calls {
			p.when(jumpEqual, nr, deny(r.errno))
		}
	}
	p.call(unix.SYS_SOCKET, socketRules(denyPing))
	p.call(unix.SYS_SOCKETPAIR, func(p *program) {
		p.loadArg(0)
		p.unless(jumpEqual, unix.AF_UNIX, deny(uintptr(unix.EPERM)))
	})
	// Into the input queue of the terminal, and so to what reads it later.
	p.call(unix.SYS_IOCTL, func(p *program) {
		p.loadArg(1)
		p.when(jumpEqual, unix.TIOCSTI, deny(uintptr(unix.EPERM)))
		p.when(jumpEqual, unix.TIOCLINUX, deny(uintptr(unix.EPERM)))
		// Another line discipline, whose module the kernel may load for it. Which one is
		// in memory, where a filter can't see; terminals begin with the usual one.
		p.when(jumpEqual, unix.TIOCSETD, deny(uintptr(unix.EPERM)))
	})
	if denyUserNS {
		for _, nr := range mounts {
			p.when(jumpEqual, nr, deny(uintptr(unix.EPERM)))
		}
		p.call(unix.SYS_UNSHARE, func(p *program) {
			p.loadArg(0)
			p.when(jumpAnyBit, namespaces|unix.CLONE_NEWTIME, deny(uintptr(unix.EPERM)))
		})
		p.call(unix.SYS_CLONE, func(p *program) {
			p.loadArg(0)
			p.when(jumpAnyBit, namespaces, deny(uintptr(unix.EPERM)))
		})
	}
	p.ret(unix.SECCOMP_RET_ALLOW)
	return p, nil
}

// socketRules lets through unix sockets, TCP (MPTCP too), UDP and ping, and of
// netlink what lists the interfaces. Everything else could reach past the firewall
// (AF_PACKET, AF_VSOCK), or is surface for nothing. IPPROTO_SMC (Linux 6.11) makes
// a TCP connection of the kernel's own, which no rule knows as the agent's.
func socketRules(denyPing bool) func(*program) {
	return func(p *program) {
		const family, kind, protocol = 0, 1, 2
		no := deny(uintptr(unix.EPERM))
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
					for _, known := range []uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_MPTCP} {
						p.when(jumpEqual, known, unix.SECCOMP_RET_ALLOW)
					}
					p.ret(no)
				})
				p.unless(jumpEqual, unix.SOCK_DGRAM, no)
				p.loadArg(protocol)
				datagrams := []uint32{0, unix.IPPROTO_UDP}
				if !denyPing {
					datagrams = append(datagrams, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6)
				}
				for _, known := range datagrams {
					p.when(jumpEqual, known, unix.SECCOMP_RET_ALLOW)
				}
				p.ret(no)
			})
		}
		p.ret(no)
	}
}

// installFilter puts the calling thread under the filter, for good.
func installFilter(filter []unix.SockFilter) error {
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return fmt.Errorf("install the seccomp filter: %w", errno)
	}
	return nil
}
