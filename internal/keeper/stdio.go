package keeper

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/privdrop"
)

// giveStdio lets the agent open /dev/stdout and its terminal by name: the files
// were opened by root, and their rights are looked at again then. What is not a
// terminal or an anonymous pipe is somebody's file, and is left alone, as is
// what belongs to another than root.
//
// Giving a file to the agent would need CAP_CHOWN. Its owner may give it to one
// of the owner's own groups, though, and CAP_SETGID makes the agent's group one
// of those, for the time of the call and on one thread.
func giveStdio(gid uint32) {
	privdrop.OnThread(func() {
		list := []uint32{gid}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&list[0])), 0); errno != 0 {
			return
		}
		for fd := range 3 {
			var st unix.Stat_t
			if unix.Fstat(fd, &st) != nil || st.Uid != 0 || !isTTY(fd) && !isPipe(fd) {
				continue
			}
			if unix.Fchown(fd, -1, int(gid)) == nil {
				_ = unix.Fchmod(fd, st.Mode&0o7777|lent(fd, isTTY(fd)))
			}
		}
	})
}

// lent are the rights of the agent's group: both on a terminal, and of a pipe only
// its own end. Who could read what the container says would take lines of ours, the
// log's among them, away from whom they are for.
func lent(fd int, terminal bool) uint32 {
	switch {
	case terminal:
		return 0o060
	case fd == 0:
		return 0o040
	}
	return 0o020
}

func isTTY(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// hungUp says whether the terminal that we were started on is gone: every call
// on it fails with EIO from then on.
func hungUp() bool {
	for fd := range 3 {
		if hungUpAt(fd) {
			return true
		}
	}
	return false
}

func hungUpAt(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == unix.EIO
}

func isPipe(fd int) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.PIPEFS_MAGIC
}
