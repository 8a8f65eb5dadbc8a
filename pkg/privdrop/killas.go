package privdrop

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

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
	borrow(func() (same bool) {
		err, same = killFrom(uid, sig, targets)
		return same
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

// killFrom does it on this thread. same says whether it is whom it was before.
func killFrom(uid uint32, sig syscall.Signal, targets []int) (err error, same bool) {
	const keep = ^uintptr(0)
	become := func(uid uint32) error {
		// The raw call: the one of the library changes all threads.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
			return fmt.Errorf("become uid %d: %w", uid, errno)
		}
		return nil
	}
	if err := become(uid); err != nil {
		return err, true
	}
	var errs []error
	for _, target := range targets {
		if target == 0 || target == 1 || target == -1 { // ourselves, the init, everybody
			errs = append(errs, fmt.Errorf("signal %d: %w", target, unix.EINVAL))
		} else if err := unix.Kill(target, sig); err != nil && err != unix.ESRCH {
			errs = append(errs, fmt.Errorf("signal %d: %w", target, err))
		}
	}
	if err := become(0); err != nil {
		return errors.Join(append(errs, err)...), false
	}
	// A change of uid sets this from fs.suid_dumpable, for the whole process.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...), true
}
