package privdrop

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Forker is a thread that has given up for good what Exec gives up, all but its ids and what it takes to change them. A
// process that is forked there becomes somebody else before it executes anything (Credential), and has no privilege
// then: the kernel empties the capability sets of who leaves uid 0 (capabilities(7)), and nothing gives any back. That
// is one process less to start than Exec takes.
//
// The thread keeps uid 0, so that no process of another uid may signal it, and with it its process (kill(2)). The forked
// process shares memory with the caller until it executes (vfork in syscall.ForkExec), and can be stopped meanwhile by
// others of its new uid: so nothing is to have that uid which is not trusted, or can start processes (Serve).
type Forker struct {
	work chan func()
}

// NewForker makes the thread, under the filter that s says (DenyUserNS, DenyPing). The calling process needs
// ExecCapabilities, and must have called Harden. All its descriptors but 0, 1 and 2 are marked close-on-exec.
func NewForker(s Spec) (*Forker, error) {
	// As Harden has done; but any change of file system ids since has set it from fs.suid_dumpable.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become undumpable: %w", err)
	}
	f := &Forker{make(chan func())}
	made := make(chan error)
	go OnThread(func() {
		err := shed(s)
		made <- err
		if err == nil {
			for do := range f.work {
				do()
			}
		}
	})
	if err := <-made; err != nil {
		return nil, err
	}
	return f, nil
}

// Do runs fork on the thread, which is to fork with a Credential.
func (f *Forker) Do(fork func()) {
	done := make(chan struct{})
	f.work <- func() {
		defer close(done)
		fork()
		stayUndumpable() // the memory was shared
	}
	<-done
}

// Credential is who a process that is forked becomes.
func (id Identity) Credential() (*syscall.Credential, error) {
	if err := id.check(); err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: id.UID, Gid: id.GID, Groups: id.Groups}, nil
}

// Environ is what Exec gives the command for an environment.
func (s Spec) Environ() []string { return environment(s.Env, s.Identity) }

// shed does to the calling thread what drop does, but for the ids.
func shed(s Spec) error {
	_, _, _ = unix.RawSyscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0) // as in drop
	if err := dropCapabilities(); err != nil {
		return err
	}
	if err := lockSecurebits(); err != nil {
		return err
	}
	if err := confine(s); err != nil {
		return err
	}
	if err := keepDescriptors(0); err != nil {
		return fmt.Errorf("close file descriptors: %w", err)
	}
	status, err := readStatus()
	if err != nil {
		return err
	}
	if err := status.must(surviving); err != nil {
		return fmt.Errorf("the drop of privileges did not hold: %w", err)
	}
	return checkSecurebits()
}
