package drop

import "golang.org/x/sys/unix"

// closed are the system calls of no use to a process that serves what it has open already:
// other programs, files by their names, and other processes.
var closed = append([]uint32{
	unix.SYS_EXECVE, unix.SYS_EXECVEAT,
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_LINKAT, unix.SYS_SYMLINKAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT2,
	unix.SYS_MKDIRAT, unix.SYS_MKNODAT, unix.SYS_FCHMODAT, unix.SYS_FCHOWNAT, unix.SYS_CHROOT, unix.SYS_CHDIR,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD,
	unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO, unix.SYS_PIDFD_SEND_SIGNAL,
	unix.SYS_LISTEN, unix.SYS_SOCKETPAIR,

	// What changes a file by its name without opening it, or watches one.
	unix.SYS_TRUNCATE, unix.SYS_UTIMENSAT, unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR,
	unix.SYS_FCHMODAT2, unix.SYS_SETXATTRAT, unix.SYS_REMOVEXATTRAT, unix.SYS_INOTIFY_ADD_WATCH,
	unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK, // POSIX message queues
}, closedHere...)

// serveFilter is the program of Serve, for a process of that pid.
func serveFilter(pid uint32) []unix.SockFilter {
	var p program
	no := deny(unix.EPERM)
	p.load(dataNumber)
	p.refuse(closed, unix.EPERM)
	// A thread more, and no process: it would be there when this one has been ended.
	p.call(unix.SYS_CLONE, func(p *program) {
		p.loadArg(0)
		p.unless(jumpAnyBit, unix.CLONE_THREAD, no)
	})
	// The runtime interrupts its own threads.
	p.call(unix.SYS_TGKILL, func(p *program) {
		p.loadArg(0)
		p.unless(jumpEqual, pid, no)
	})
	p.call(unix.SYS_SOCKET, func(p *program) {
		p.loadArg(0)
		for _, family := range []uint32{unix.AF_INET, unix.AF_INET6} {
			p.skipUnless(family, func(p *program) {
				p.loadArg(1)
				p.and(^uint32(socketFlags))
				p.oneOf(unix.SOCK_STREAM, unix.SOCK_DGRAM)
			})
		}
		p.ret(no)
	})
	p.ret(unix.SECCOMP_RET_ALLOW)
	return p
}

// Serve leaves the process, with all its threads, nothing but what it has open, and sockets of
// TCP and UDP, on top of the filter that it was started with. It can't be undone.
func Serve() error {
	return installFilter(serveFilter(uint32(unix.Getpid())), unix.SECCOMP_FILTER_FLAG_TSYNC)
}
