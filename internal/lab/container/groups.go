package container

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawSetgroups is setgroups(2) for the calling thread alone.
func rawSetgroups(groups []uint32) error {
	var p unsafe.Pointer
	if len(groups) > 0 {
		p = unsafe.Pointer(&groups[0])
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(p), 0); e != 0 {
		return e
	}
	return nil
}
