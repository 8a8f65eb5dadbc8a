package attach

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// waiter waits for several descriptors at once, without blocking a thread: a thread that the runtime has to take its
// processor from, and give one again, costs a key more than all that is done with it. An epoll instance of its own,
// which the runtime's poller waits for as for any other file, needs no descriptor to be non-blocking: the terminal's
// are shared with the shell (epoll(7)).
type waiter struct {
	ep   int
	file *os.File
	raw  syscall.RawConn
}

func newWaiter() (*waiter, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	err = unix.SetNonblock(ep, true) // says to os.NewFile that it can be waited for
	w := &waiter{ep: ep, file: os.NewFile(uintptr(ep), "epoll")}
	if err == nil {
		w.raw, err = w.file.SyscallConn()
	}
	if err != nil {
		w.file.Close()
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return w, nil
}

func (w *waiter) watch(fd int, events uint32) error {
	event := unix.EpollEvent{Events: events, Fd: int32(fd)}
	err := unix.EpollCtl(w.ep, unix.EPOLL_CTL_MOD, fd, &event)
	if err == unix.ENOENT {
		err = unix.EpollCtl(w.ep, unix.EPOLL_CTL_ADD, fd, &event)
	}
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// wait returns what there is to do, or nothing when the time has come for something.
func (a *attachment) wait(events []unix.EpollEvent) ([]unix.EpollEvent, error) {
	on := uint32(unix.EPOLLIN)
	if len(a.typed) > 0 {
		on |= unix.EPOLLOUT
	}
	if a.asked != on && a.sock >= 0 {
		if err := a.waiter.watch(a.sock, on); err != nil {
			return nil, err
		}
		a.asked = on
	}
	var deadline time.Time
	if timeout := a.timeout(); timeout >= 0 {
		deadline = time.Now().Add(timeout)
	}
	var n int
	var failed error
	err := a.waiter.file.SetReadDeadline(deadline)
	if err == nil && len(a.signals) == 0 { // one that comes from here on ends the wait
		err = a.waiter.raw.Read(func(uintptr) bool {
			for {
				if n, failed = unix.EpollWait(a.waiter.ep, events, 0); failed != unix.EINTR {
					return n > 0 || failed != nil
				}
			}
		})
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, nil
	}
	if err = errors.Join(failed, err); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return events[:n], nil
}

// timeout is how long nothing has to be done; less than 0: for ever.
func (a *attachment) timeout() time.Duration {
	wait := time.Duration(-1)
	for _, t := range []struct {
		since time.Time
		after time.Duration
	}{{a.escape, escapeTime}, {a.settling, settleTime}, {a.leaving, detachTime}, {a.ending, endTime}, {a.lost, a.pause}} {
		if left := max(0, t.after-time.Since(t.since)); !t.since.IsZero() && (wait < 0 || left < wait) {
			wait = left
		}
	}
	return wait
}

func past(since time.Time, after time.Duration) bool {
	return !since.IsZero() && time.Since(since) >= after
}
