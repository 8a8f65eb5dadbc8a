package privdrop

import (
	"errors"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MayWrite tells whether id may make files in dir, as the kernel judges it: by the
// bits, by ACLs, and by what the mount says. A kernel or a sandbox that can't be
// asked (faccessat2(2)) answers with yes.
func MayWrite(id Identity, dir string) error {
	done := make(chan error, 1)
	go func() {
		// The thread is id's for access to files from here on, and ends with this goroutine.
		runtime.LockOSThread()
		done <- mayWrite(id, dir)
	}()
	return <-done
}

func mayWrite(id Identity, dir string) error {
	// Of this thread only: unix.Setgroups is for all.
	var first unsafe.Pointer
	if len(id.Groups) > 0 {
		first = unsafe.Pointer(&id.Groups[0])
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(id.Groups)), uintptr(first), 0); errno != 0 {
		return missing(unix.CAP_SETGID)
	}
	if _, err := unix.SetfsgidRetGid(int(id.GID)); err != nil {
		return err
	}
	if err := become(id.UID); err != nil {
		return err
	}
	err := unix.Faccessat2(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}
