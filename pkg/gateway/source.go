package gateway

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	bufferSize = 32 << 10
	bulkAfter  = 256 << 10 // bytes that a source has moved before the kernel splices
	bulkLeast  = 64 << 10  // bytes that must wait in the socket for a splice to pay
	untilEnd   = math.MaxInt64
	tcpClose   = 7 // TCP_CLOSE of net/tcp_states.h
)

// errFull is returned by fill if a buffer's worth of bytes waits to be taken.
var errFull = errors.New("buffer is full")

type buffer [bufferSize]byte

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// source reads a TCP connection without holding memory while there is nothing to read. One goroutine uses it at a time.
type source struct {
	conn *net.TCPConn
	raw  syscall.RawConn

	buf   *buffer // nil while nothing is held
	r, w  int     // buf[r:w] is held
	moved int64   // by step, since the beginning
	spoke bool    // a byte has come

	attempt func(fd uintptr) bool // the method try, bound once
	limit   int64                 // of a splice; 0 is none
	queued  int64                 // what try left in the socket to be spliced
	err     error                 // of try
}

func newSource(conn *net.TCPConn) (*source, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &source{conn: conn, raw: raw}
	s.attempt = s.try
	return s, nil
}

// held returns what was read and not taken. It is valid until the next call.
func (s *source) held() []byte {
	if s.buf == nil {
		return nil
	}
	return s.buf[s.r:s.w]
}

func (s *source) take(n int) {
	if s.r += n; s.r == s.w {
		s.release()
	}
}

func (s *source) release() {
	if s.buf != nil {
		buffers.Put(s.buf)
	}
	s.buf, s.r, s.w = nil, 0, 0
}

// fill waits for bytes and reads some, behind those that are held.
func (s *source) fill() error {
	if s.w == bufferSize {
		if s.r == 0 {
			return errFull
		}
		s.w = copy(s.buf[:], s.buf[s.r:s.w])
		s.r = 0
	}
	return s.wait()
}

func (s *source) wait() error {
	s.err, s.queued = nil, 0
	if err := s.raw.Read(s.attempt); err != nil {
		return err
	}
	return s.err
}

// try reads what is there. It returns false if that is nothing.
func (s *source) try(fd uintptr) bool {
	if s.limit >= bulkLeast && s.moved >= bulkAfter {
		if n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil && n >= bulkLeast {
			s.queued = min(int64(n), s.limit)
			return true
		}
	}
	if s.buf == nil {
		s.buf = buffers.Get().(*buffer)
	}
	n := 0
	for s.err = unix.EINTR; s.err == unix.EINTR; {
		n, s.err = unix.Read(int(fd), s.buf[s.w:])
	}
	if n > 0 {
		s.w += n
		s.spoke = true
		return true
	}
	if s.r == s.w {
		s.release()
	}
	switch s.err {
	case unix.EAGAIN:
		s.err = nil
		return false
	case nil:
		s.err = io.EOF
	}
	return true
}

// writeError is the failure of a sink, as opposed to a source's.
type writeError struct{ err error }

func (e *writeError) Error() string { return "write: " + e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// write says of a failure that it is the sink's.
func write(dst io.Writer, b []byte) error {
	if _, err := dst.Write(b); err != nil {
		return &writeError{err}
	}
	return nil
}

// step moves bytes to dst as soon as there are any, at most n.
func (s *source) step(dst io.Writer, n int64) (int64, error) {
	if s.r == s.w {
		s.limit = n
		err := s.wait()
		s.limit = 0
		if err != nil {
			return 0, err
		}
		if s.queued > 0 {
			return s.splice(dst)
		}
	}
	n = min(n, int64(s.w-s.r))
	m, err := dst.Write(s.buf[s.r : s.r+int(n)])
	s.moved += int64(m)
	s.take(m)
	if err != nil {
		return int64(m), &writeError{err}
	}
	return int64(m), nil
}

// splice moves what is queued, inside the kernel if dst can.
func (s *source) splice(dst io.Writer) (int64, error) {
	n, err := io.CopyN(dst, s.conn, s.queued)
	s.moved += n
	if err != nil && !s.reset() {
		err = &writeError{err}
	}
	return n, err
}

// reset says whether the peer has reset the connection. The error of a splice
// doesn't say which of the two sockets it is about.
func (s *source) reset() bool {
	closed := true
	s.raw.Control(func(fd uintptr) { closed = tcpClosed(int(fd)) })
	return closed
}

func tcpClosed(fd int) bool {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err != nil || info.State == tcpClose
}

// forward moves exactly n bytes to dst; with untilEnd, all there are, and then it returns io.EOF.
func (s *source) forward(dst io.Writer, n int64) error {
	for n > 0 {
		m, err := s.step(dst, n)
		if err != nil {
			return err
		}
		if n != untilEnd {
			n -= m
		}
	}
	return nil
}

// flush moves what is held, before src is given up.
func (s *source) flush(dst io.Writer) {
	if len(s.held()) > 0 {
		s.step(dst, untilEnd)
	}
}

// discard reads to the end and keeps nothing. It calls seen at the first that is more
// than the empty lines that old clients end a body with (RFC 9112, section 2.2).
func (s *source) discard(seen func()) error {
	defer s.release()
	for said := false; ; {
		if !said && len(bytes.Trim(s.held(), "\r\n")) > 0 {
			seen()
			said = true
		}
		s.r, s.w = 0, 0
		if err := s.wait(); err != nil {
			return err
		}
	}
}

// awaitReset waits, after the end of the stream, for the peer to reset the connection. It returns when that happens, or
// when the connection is closed. Reading would not tell: it goes on saying that the end was reached.
func (s *source) awaitReset() {
	s.raw.Read(func(fd uintptr) bool { return tcpClosed(int(fd)) })
}
