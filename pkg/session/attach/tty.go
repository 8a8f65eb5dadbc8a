package attach

import "golang.org/x/sys/unix"

// write writes to the terminal, and waits until it has taken all.
func (a *attachment) write(b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(a.out, b)
		b = b[max(n, 0):]
		switch err {
		case nil, unix.EINTR:
		case unix.EAGAIN: // it is full, and somebody has made it not block
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(a.out), Events: unix.POLLOUT}}, -1)
		default:
			return ErrTerminal
		}
	}
	return nil
}
