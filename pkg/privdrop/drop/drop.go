package drop

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/privdrop"
)

// securebits that a dropped process gets, see capabilities(7): uid 0 means
// nothing any more, and none of it can be undone.
const securebits = 1<<0 | 1<<1 | // NOROOT and its lock
	1<<3 | // NO_SETUID_FIXUP locked, off: who leaves uid 0 loses its capabilities
	1<<5 | // KEEP_CAPS locked, off
	1<<6 | 1<<7 // NO_CAP_AMBIENT_RAISE and its lock

// drop makes the calling thread what s says. The order matters: each step needs a privilege that a later one gives up.
func drop(s privdrop.Spec) error {
	id := s.Identity
	if err := id.Check(); err != nil {
		return err
	}
	unix.Umask(int(cmp.Or(s.Umask, 0o022)))
	if err := privdrop.NoCoreDumps(); err != nil {
		return err
	}
	// A session keyring of root's would go along. Where this is refused, as by container engines, so is every other use
	// of keyrings; and the filter below denies them all.
	_, _, _ = unix.RawSyscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	if s.Nice > 0 && !privdrop.OnGVisor() { // which shares processors as it likes, and refuses such limits
		if err := standBack(s.Nice); err != nil {
			return fmt.Errorf("stand back from others: %w", err)
		}
	}

	if err := dropCapabilities(); err != nil {
		return err
	}
	if err := id.TakeGroups(); err != nil {
		return privdrop.Needs(unix.CAP_SETGID, err)
	}
	if err := rawSetres(unix.SYS_SETRESGID, id.GID); err != nil {
		return privdrop.Needs(unix.CAP_SETGID, err)
	}
	if err := lockSecurebits(); err != nil {
		return err
	}
	if err := rawSetres(unix.SYS_SETRESUID, id.UID); err != nil {
		return privdrop.Needs(unix.CAP_SETUID, err)
	}
	// They are so already, unless the kernel thinks otherwise.
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &make([]unix.CapUserData, 2)[0]); err != nil {
		return fmt.Errorf("empty the capability sets: %w", err)
	}
	if s.ParentPID != 0 { // after setresuid, which clears it
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
			return fmt.Errorf("tie the agent's life to its parent's: %w", err)
		}
		if unix.Getppid() != s.ParentPID {
			return errors.New("the parent has ended")
		}
	}
	return confine(s)
}

// lockSecurebits sets them for good. gVisor refuses it; what it protects from, a return of uid 0, is ruled out by the
// empty bounding set and no_new_privs alone.
func lockSecurebits() error {
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, securebits, 0, 0, 0); err != nil && (err != unix.EPERM || !privdrop.OnGVisor()) {
		return privdrop.Needs(unix.CAP_SETPCAP, err)
	}
	return nil
}

// confine has no later execve(2) give anything back, and installs the filter.
func confine(s privdrop.Spec) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return installFilter(seccompFilter(s.DenyUserNS, s.DenyPing), 0)
}

// idleNice is the niceness with which the command runs only where nothing else wants the processor (SCHED_IDLE): the kernel
// weighs it as 3 then, and not as 15, beside 1,024 of each process of agent-init (sched(7)).
const idleNice = 19

// standBack makes the niceness of the calling thread at least n, for good: who has neither the capability nor a limit that
// says so can't lower it, nor leave SCHED_IDLE, nor be scheduled in real time.
func standBack(n int) error {
	for _, limit := range []int{unix.RLIMIT_NICE, unix.RLIMIT_RTPRIO} {
		if err := unix.Setrlimit(limit, &unix.Rlimit{}); err != nil {
			return err
		}
	}
	was, err := niceness()
	if err != nil {
		return err
	}
	if was < n {
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, n); err != nil {
			return err
		}
	}
	if n >= idleNice {
		idle := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE, Nice: idleNice}
		if err := unix.SchedSetAttr(0, &idle, 0); err != nil && err != unix.ENOSYS { // as in gVisor
			return err
		}
	}
	if sid, err := unix.Getsid(0); err == nil && sid == unix.Getpid() {
		// Where sessions are what the kernel shares processors among, see sched(7), this one is ours alone. There may be no
		// such file, and a new session begins anew.
		_ = os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(n)), 0)
	}
	return nil
}

// niceness is that of the calling thread. The system call returns it the other way round, so that it is never negative.
func niceness() (int, error) {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	return 20 - n, err
}

// dropCapabilities empties the sets that survive an exec: ambient, bounding.
func dropCapabilities() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil && err != unix.EINVAL {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	for c := range 64 { // the sets have so many bits
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		if err == unix.EINVAL && c > 0 { // the kernel knows no more
			return nil
		}
		if err != nil {
			return privdrop.Needs(unix.CAP_SETPCAP, err)
		}
	}
	return nil
}

// The calls of package syscall for these apply to all threads. Those others
// end at the exec, and one that failed would take the process with it.

func rawSetres(call uintptr, id uint32) error {
	if _, _, errno := unix.RawSyscall(call, uintptr(id), uintptr(id), uintptr(id)); errno != 0 {
		return errno
	}
	return nil
}
