package broker

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// hangups notices that clients hang up while they wait for an answer. One goroutine looks at all of them: with one for
// each, a thousand streams would need two MiB more.
type hangups struct {
	epoll *os.File
	fd    int // of epoll; os.File.Fd would have it block

	mu   sync.Mutex
	last uint64
	gone map[uint64]func() // what is done, by the number that the kernel has for a connection
}

func newHangups() (*hangups, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // Go's own poller waits for it
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &hangups{epoll: os.NewFile(uintptr(fd), "epoll"), fd: fd, gone: map[uint64]func(){}}, nil
}

// serve calls what is to be done, until close.
func (h *hangups) serve() error {
	raw, err := h.epoll.SyscallConn()
	if err != nil {
		return err
	}
	var events [64]unix.EpollEvent
	for {
		n := 0
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, failed = unix.EpollWait(int(fd), events[:], 0)
			return n > 0 || failed != nil && !errors.Is(failed, unix.EINTR)
		})
		if err != nil || failed != nil {
			return errors.Join(err, failed)
		}
		for _, e := range events[:n] {
			if gone := h.take(uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32); gone != nil {
				gone()
			}
		}
	}
}

func (h *hangups) take(number uint64) func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	gone := h.gone[number]
	delete(h.gone, number)
	return gone
}

// watch has gone called once, if the client closes its end. It says how to forget that.
func (h *hangups) watch(conn net.Conn, gone func()) (forget func(), err error) {
	forget = func() {}
	s, ok := conn.(syscall.Conn)
	if !ok {
		return forget, errors.ErrUnsupported
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return forget, err
	}
	h.mu.Lock()
	h.last++
	number := h.last
	h.gone[number] = gone
	h.mu.Unlock()
	// EPOLLHUP and EPOLLERR are told without being asked for (epoll_ctl(2)).
	e := unix.EpollEvent{
		Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT,
		Fd:     int32(uint32(number)), Pad: int32(uint32(number >> 32)), // the kernel hands both back, and reads neither
	}
	inner := raw.Control(func(fd uintptr) {
		err = unix.EpollCtl(h.fd, unix.EPOLL_CTL_ADD, int(fd), &e)
	})
	if err = errors.Join(inner, err); err != nil {
		h.take(number)
		return forget, err
	}
	return func() { h.take(number) }, nil
}
