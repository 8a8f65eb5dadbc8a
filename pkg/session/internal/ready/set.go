// Package ready waits for descriptors, and reads and writes them, for who is woken up by single keys.
//
// The runtime's own files take a key more time than all that is done with it. Its poller waits for room to write as
// well, which there is again whenever the other side has read. And each call that may block wakes up its monitor, if
// all was quiet before (runtime.entersyscall). Descriptors of this package don't block, so they need no monitor.
package ready

import (
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Set is some descriptors that are waited for. It is an epoll instance of its own, which the runtime's poller waits for
// as for any other file: no thread is blocked, and a descriptor may be one that blocks.
type Set struct {
	ep   int
	file *os.File
	raw  syscall.RawConn

	// Of Events; look is a function once and for all, since making one anew takes time.
	look   func(uintptr) bool
	events []unix.EpollEvent
	n      int
	errno  unix.Errno
}

// NewSet returns a set of none.
func NewSet() (*Set, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	err = unix.SetNonblock(ep, true) // says to os.NewFile that it can be waited for
	s := &Set{ep: ep, file: os.NewFile(uintptr(ep), "epoll")}
	if err == nil {
		s.raw, err = s.file.SyscallConn()
	}
	if err != nil {
		s.file.Close()
		return nil, fmt.Errorf("epoll: %w", err)
	}
	s.look = s.poll
	return s, nil
}

// Watch has the set wait for events of a descriptor, in the place of those before.
func (s *Set) Watch(fd int, events uint32) error {
	event := unix.EpollEvent{Events: events, Fd: int32(fd)}
	err := unix.EpollCtl(s.ep, unix.EPOLL_CTL_MOD, fd, &event)
	if err == unix.ENOENT {
		err = unix.EpollCtl(s.ep, unix.EPOLL_CTL_ADD, fd, &event)
	}
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// Until ends the wait at some time, and those that come after; the zero time: never. It may be called meanwhile.
func (s *Set) Until(t time.Time) error { return s.file.SetReadDeadline(t) }

// Wait calls try, and again whenever something has happened, until it returns true. It returns
// os.ErrDeadlineExceeded if the time is over before, and another error if the set is closed.
func (s *Set) Wait(try func(uintptr) bool) error { return s.raw.Read(try) }

// Events waits until something has happened, and returns how much of it there is.
func (s *Set) Events(events []unix.EpollEvent) (int, error) {
	s.events = events
	if err := s.Wait(s.look); err != nil {
		return 0, err
	}
	if s.errno != 0 {
		return 0, fmt.Errorf("epoll: %w", s.errno)
	}
	return s.n, nil
}

func (s *Set) poll(uintptr) bool {
	for {
		first := unsafe.Pointer(unsafe.SliceData(s.events))
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(s.ep), uintptr(first), uintptr(len(s.events)), 0, 0, 0)
		if errno != unix.EINTR {
			s.n, s.errno = int(n), errno
			return n > 0
		}
	}
}

// Close ends all waits.
func (s *Set) Close() { s.file.Close() }
