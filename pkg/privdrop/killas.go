package privdrop

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// KillAs sends sig to processes, or with negative numbers to process groups, as
// uid: a root without CAP_KILL, but with CAP_SETUID, may signal no other uid, and
// may become it (credentials(7), kill(2)). Processes that have ended are no error.
//
// One thread does it, for the time of the calls. Its real and its saved uid stay
// root's, so that nobody else may signal or trace it meanwhile (kill(2), ptrace(2)),
// and no process is started that could be stopped, or find no room.
func KillAs(uid uint32, sig syscall.Signal, targets ...int) error {
	if uid == 0 {
		return unix.EPERM // it is what the caller tried
	}
	out := make(chan error)
	go func() {
		runtime.LockOSThread()
		err, same := killAs(uid, sig, targets)
		if same {
			runtime.UnlockOSThread()
		} // else the thread ends with this function, and nothing else ever runs on it
		out <- err
	}()
	return <-out
}

// killAs does it on this thread. same says whether it is whom it was before.
func killAs(uid uint32, sig syscall.Signal, targets []int) (err error, same bool) {
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
