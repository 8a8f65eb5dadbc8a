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
func MayWrite(id Identity, dir string) (err error) {
	// The thread is id's for access to files from here on.
	OnThread(func() { err = mayWrite(id, dir) })
	return err
}

// OnThread runs f on a thread of its own, which ends with it: whatever f makes of the thread's ids, nothing else
// runs with them. The main thread is none of those, since the Go runtime keeps that for as long as the process lives
// (mexit in runtime/proc.go), and /proc/PID shows its ids as the process's.
func OnThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and not unlocked: that ends the thread
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		OnThread(f) // which gets another one, as long as this goroutine holds the main thread
		runtime.UnlockOSThread()
	}()
	<-done
}

// FilesAs runs f on a thread that has access to files, and makes them, as uid and gid, either of which may be -1: as we
// do. Where that can't be, f runs as we are.
func FilesAs(uid, gid int, f func()) {
	borrow(func() (same bool) {
		ownGID, _ := unix.SetfsgidRetGid(gid)
		ownUID, _ := unix.SetfsuidRetUid(uid)
		f()
		_ = unix.Setfsuid(ownUID)
		_ = unix.Setfsgid(ownGID)
		nowUID, _ := unix.SetfsuidRetUid(-1)
		nowGID, _ := unix.SetfsgidRetGid(-1)
		return nowUID == ownUID && nowGID == ownGID
	})
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
