package ready

import (
	"cmp"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/nowait"
)

// File is a descriptor that does not block. One goroutine reads it, many may write without waiting, and one at a time
// may wait for room.
type File struct {
	mu   sync.RWMutex // held by who uses fd; who does never waits meanwhile
	fd   int          // -1: closed
	in   *Set         // there is something to read
	room *Set         // to write; nil until it was waited for

	// Of who reads. The functions are made once and for all, since making one anew takes time.
	try    func(fd int) bool
	once   func(uintptr) bool
	fill   func(fd int) bool
	closed bool
	deaf   bool // in does not hear of what there is to read, see Flood
	into   []byte
	n      int
	errno  unix.Errno
}

// Duplicate returns a duplicate of a connection's or a file's descriptor. Neither blocks from then on.
func Duplicate(c syscall.Conn) (*File, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	f := &File{fd: -1}
	f.once, f.fill = f.tryOnce, f.fillInto
	e := raw.Control(func(fd uintptr) {
		if f.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3); err == nil {
			err = unix.SetNonblock(f.fd, true)
		}
	})
	if err = cmp.Or(e, err); err == nil {
		if f.in, err = NewSet(); err == nil {
			err = f.in.Watch(f.fd, unix.EPOLLIN)
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Use calls do with the descriptor, unless it is closed. It must not wait.
func (f *File) Use(do func(fd int)) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.fd < 0 {
		return os.ErrClosed
	}
	do(f.fd)
	return nil
}

// ReadUntil ends the wait of who reads at some time.
func (f *File) ReadUntil(t time.Time) error { return f.in.Until(t) }

// ReadBy calls try when there may be something to read, until it returns true.
func (f *File) ReadBy(try func(fd int) bool) error {
	f.try = try
	err := f.in.Wait(f.once)
	if f.closed || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return os.ErrClosed
	}
	return err
}

func (f *File) tryOnce(uintptr) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	f.closed = f.fd < 0
	for !f.closed && !f.try(f.fd) {
		if !f.deaf {
			return false
		}
		// From here on it hears of what comes; what has come before, it may never (ep_modify in fs/eventpoll.c).
		f.deaf = false
		f.closed = f.in.Watch(f.fd, unix.EPOLLIN) != nil
	}
	return true
}

// Flood is for a try that has found much, returns true, and is called again anyway. Until it finds nothing, no thread is
// woken up for what there is to read. Otherwise each piece wakes the thread that waits in the runtime's poller.
func (f *File) Flood(fd int) {
	if !f.deaf {
		f.deaf = f.in.Watch(fd, 0) == nil
	}
}

// Read waits until there is something to read.
func (f *File) Read(b []byte) (int, error) {
	f.into = b
	err := f.ReadBy(f.fill)
	switch {
	case err != nil:
		return 0, err
	case f.errno != 0:
		return 0, f.errno
	case f.n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return f.n, nil
}

func (f *File) fillInto(fd int) bool {
	f.n, f.errno = nowait.Read(fd, f.into)
	return f.errno != unix.EAGAIN
}

// WriteNow writes what is taken without waiting, and returns how much. Who waits finds an error that is final.
func (f *File) WriteNow(b []byte) int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.fd < 0 {
		return 0
	}
	n, _ := nowait.Write(f.fd, b)
	return n
}

// Write waits until all of b is taken, or until some time. It returns how much was.
func (f *File) Write(b []byte, until time.Time) (n int, err error) {
	room, err := f.roomToWrite()
	if err == nil {
		err = cmp.Or(f.watch(room, unix.EPOLLOUT), room.Until(until))
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.watch(room, 0) }()
	var errno unix.Errno
	var closed error
	err = room.Wait(func(uintptr) bool {
		closed = f.Use(func(fd int) {
			var m int
			m, errno = nowait.Write(fd, b[n:])
			n += m
		})
		return closed != nil || errno != unix.EAGAIN
	})
	switch {
	case closed != nil || err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
		err = os.ErrClosed
	case err == nil && errno != 0:
		err = errno
	}
	return n, err
}

func (f *File) roomToWrite() (*Set, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fd < 0 {
		return nil, os.ErrClosed
	}
	var err error
	if f.room == nil {
		f.room, err = NewSet()
	}
	return f.room, err
}

func (f *File) watch(s *Set, events uint32) error {
	var err error
	closed := f.Use(func(fd int) { err = s.Watch(fd, events) })
	return cmp.Or(closed, err)
}

// Close ends all waits. It may be called again.
func (f *File) Close() {
	f.mu.Lock()
	fd, sets := f.fd, [...]*Set{f.in, f.room}
	f.fd, f.room = -1, nil
	f.mu.Unlock()
	if fd < 0 {
		return
	}
	unix.Close(fd)
	for _, s := range sets { // without the lock: who waits takes it before it goes
		if s != nil {
			s.Close()
		}
	}
}
