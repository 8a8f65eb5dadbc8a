package session

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stream is a client's connection, or a window's terminal. One goroutine reads it, many may write without waiting, and one
// at a time may wait for room.
type stream struct {
	file
	raw syscall.RawConn
}

// file is a descriptor that the runtime's poller waits for: an *os.File or a *net.UnixConn.
type file interface {
	io.ReadWriteCloser
	syscall.Conn
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

func newStream(f file) (*stream, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &stream{f, raw}, nil
}

// openTerminal takes over a terminal's descriptor, which may block so far.
func openTerminal(f *os.File) (*stream, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("duplicate a descriptor: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // says to os.NewFile that it can be waited for
		unix.Close(fd)
		return nil, err
	}
	f.Close()
	return newStream(os.NewFile(uintptr(fd), "terminal"))
}

// writeNow writes what is taken without waiting, and returns how much. Who waits finds an error that is final.
func (s *stream) writeNow(b []byte) (n int) {
	_ = s.raw.Control(func(fd uintptr) { n, _ = unix.Write(int(fd), b) })
	return max(n, 0)
}

// write waits until all of b is taken, or until some time. It returns how much was.
func (s *stream) write(b []byte, until time.Time) (int, error) {
	if err := s.SetWriteDeadline(until); err != nil {
		return 0, err
	}
	return s.Write(b)
}

// use calls do with the descriptor, unless it is closed. It must not wait.
func (s *stream) use(do func(fd int)) error { return s.raw.Control(func(fd uintptr) { do(int(fd)) }) }
