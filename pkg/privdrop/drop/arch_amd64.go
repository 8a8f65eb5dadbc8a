package drop

import "golang.org/x/sys/unix"

// architecture is what the calls of a program of this one are made by.
const architecture = unix.AUDIT_ARCH_X86_64

// closedHere are the calls of closed that only this architecture has.
var closedHere = []uint32{
	unix.SYS_OPEN, unix.SYS_CREAT, unix.SYS_LINK, unix.SYS_SYMLINK, unix.SYS_UNLINK, unix.SYS_RMDIR, unix.SYS_RENAME, unix.SYS_RENAMEAT,
	unix.SYS_MKDIR, unix.SYS_MKNOD, unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_FORK, unix.SYS_VFORK,
	unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
}
