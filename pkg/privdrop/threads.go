package privdrop

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// MayWrite tells whether id may make files in dir, as the kernel judges it. A kernel or a
// sandbox that can't be asked (faccessat2(2)) answers with yes.
func MayWrite(id Identity, dir string) (err error) {
	// The thread is id's for access to files from here on.
	OnThread(func() {
		if id.TakeGroups() != nil {
			err = missing(unix.CAP_SETGID)
		} else if _, err = unix.SetfsgidRetGid(int(id.GID)); err == nil {
			err = become(id.UID)
		}
		if err != nil {
			return
		}
		err = unix.Faccessat2(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
		if err == unix.ENOSYS || err == unix.EPERM {
			err = nil
		}
	})
	stayUndumpable()
	return err
}

// stayUndumpable is for after a change of a thread's ids, which sets this from fs.suid_dumpable for the whole process
// (commit_creds in kernel/cred.c).
func stayUndumpable() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// OnThread runs f on a thread of its own, which ends with it: whatever f makes of the thread's
// ids, nothing else runs with them. The main thread is none of those: the Go runtime keeps it
// for as long as the process lives (mexit in runtime/proc.go), and /proc/PID shows its ids.
func OnThread(f func()) {
	borrow(func() (same bool) {
		if unix.Gettid() != unix.Getpid() {
			f()
			return false
		}
		OnThread(f) // which gets another one, as long as this goroutine holds the main thread
		return true
	})
}

// FilesAs runs f on a thread that has access to files, and makes them, as uid and gid, either of
// which may be -1: as we do. Where that can't be, f runs as we are.
func FilesAs(uid, gid int, f func()) {
	borrow(func() (same bool) {
		ownGID, _ := unix.SetfsgidRetGid(gid)
		ownUID, _ := unix.SetfsuidRetUid(uid)
		f()
		_ = unix.Setfsuid(ownUID)
		_ = unix.Setfsgid(ownGID)
		stayUndumpable()
		nowUID, _ := unix.SetfsuidRetUid(-1)
		nowGID, _ := unix.SetfsgidRetGid(-1)
		return nowUID == ownUID && nowGID == ownGID
	})
}

// TakeGroups makes the supplementary groups of the calling thread those of id.
func (id Identity) TakeGroups() error {
	list := make([]int, len(id.Groups))
	for i, g := range id.Groups {
		list[i] = int(g)
	}
	return unix.Setgroups(list)
}

// become sets the thread's uid for access to files, which takes root's
// capabilities for files with it, and gives them back (setfsuid(2)).
func become(uid uint32) error {
	if _, err := unix.SetfsuidRetUid(int(uid)); err != nil {
		return err
	}
	// A failure is not reported; asking for no uid tells the present one.
	if now, _ := unix.SetfsuidRetUid(-1); uint32(now) != uid {
		return missing(unix.CAP_SETUID)
	}
	return nil
}

// SignalAs sends sig to processes, or with negative numbers to process groups, as the
// user of each: a root without CAP_KILL, but with CAP_SETUID, may signal no other uid, and
// may become it (credentials(7), kill(2)). Processes that have ended are no error.
func SignalAs(pids []int, sig syscall.Signal) error {
	byUID := map[uint32][]int{}
	for _, pid := range pids {
		var st unix.Stat_t
		if unix.Stat("/proc/"+strconv.Itoa(max(pid, -pid)), &st) == nil { // else it has ended
			byUID[st.Uid] = append(byUID[st.Uid], pid)
		}
	}
	var errs []error
	for uid, list := range byUID {
		errs = append(errs, killAs(uid, sig, list...))
	}
	return errors.Join(errs...)
}

// killAs is SignalAs for processes of one uid. One thread does it, for the time of the
// calls. Its real and its saved uid stay root's, so that nobody else may signal or trace it
// meanwhile (kill(2), ptrace(2)). No process is started that could be stopped, or find no room.
func killAs(uid uint32, sig syscall.Signal, targets ...int) (err error) {
	if uid == 0 {
		return unix.EPERM // it is what the caller tried
	}
	become := func(uid uint32) error {
		const keep = ^uintptr(0)
		// The raw call: the one of the library changes all threads.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
			return fmt.Errorf("become uid %d: %w", uid, errno)
		}
		return nil
	}
	borrow(func() (same bool) {
		if err = become(uid); err != nil {
			return true
		}
		var errs []error
		for _, target := range targets {
			err := error(unix.EINVAL)
			if target != 0 && target != 1 && target != -1 { // ourselves, the init, everybody
				err = unix.Kill(target, sig)
			}
			if err != nil && err != unix.ESRCH {
				errs = append(errs, fmt.Errorf("signal %d: %w", target, err))
			}
		}
		back := become(0)
		if back == nil {
			// A change of uid sets this from fs.suid_dumpable, for the whole process.
			errs = append(errs, unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
		}
		err = errors.Join(append(errs, back)...)
		return back == nil
	})
	return err
}

// borrow runs f on a thread of which nothing else runs meanwhile. It is given back if f has
// left it as it was; else it ends, and nothing else ever runs on it. The runtime keeps its
// threads otherwise, since an agent may leave no room for others.
func borrow(f func() (same bool)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if f() {
			runtime.UnlockOSThread()
		}
	}()
	<-done
}
