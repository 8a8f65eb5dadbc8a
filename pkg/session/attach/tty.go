package attach

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/nowait"
)

// openTerminal finds the descriptors of the terminal, and returns what closes those that are ours. Whether one blocks
// is said of all its duplicates, and the shell has one. So the terminal is opened once more where that is allowed.
func (a *attachment) openTerminal() (done func()) {
	a.in, a.out = int(a.o.In.Fd()), int(a.o.Out.Fd())
	if a.o.Own {
		a.patient = unix.SetNonblock(a.in, true) != nil || unix.SetNonblock(a.out, true) != nil
		return func() {}
	}
	in, err := again(a.in, unix.O_RDONLY)
	if err != nil {
		a.patient = true
		return func() {}
	}
	out, err := again(a.out, unix.O_WRONLY)
	if err != nil {
		unix.Close(in)
		a.patient = true
		return func() {}
	}
	a.in, a.out = in, out
	return func() { unix.Close(in); unix.Close(out) }
}

func again(fd, mode int) (int, error) {
	if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err != nil {
		return -1, err // to open what is none could wait, or do something
	}
	return unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), mode|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
}

// read reads what was typed.
func (a *attachment) read() (int, error) {
	if a.patient {
		return unix.Read(a.in, a.buf)
	}
	n, errno := nowait.Read(a.in, a.buf)
	return n, cause(errno)
}

// write writes to the terminal, and waits until it has taken all.
func (a *attachment) write(b []byte) error {
	for len(b) > 0 {
		n, err := a.put(b)
		b = b[max(n, 0):]
		switch err {
		case nil, unix.EINTR:
		case unix.EAGAIN: // it is full; or somebody has made one of others' non-blocking
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(a.out), Events: unix.POLLOUT}}, -1)
		default:
			return ErrTerminal
		}
	}
	return nil
}

func (a *attachment) put(b []byte) (int, error) {
	if a.patient {
		return unix.Write(a.out, b)
	}
	n, errno := nowait.Write(a.out, b)
	return n, cause(errno)
}

func cause(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}
