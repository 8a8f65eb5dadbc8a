// Package nowait makes the system calls of descriptors that don't block, past the runtime's monitor.
//
// The runtime takes any system call for one that may block: the first one after a rest wakes up its monitor, a thread that
// then looks every 20 µs (https://go.dev/src/runtime/proc.go, entersyscall). What never blocks needs none.
package nowait

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Read reads from a descriptor that does not block, once.
func Read(fd int, b []byte) (int, unix.Errno) { return transfer(unix.SYS_READ, fd, b) }

// Rest reads what a descriptor that does not block has, as far as b takes it, and returns how much.
func Rest(fd int, b []byte) (n int) {
	for n < len(b) {
		m, errno := Read(fd, b[n:])
		if m == 0 || errno != 0 {
			break
		}
		n += m
	}
	return n
}

// Write writes what a descriptor that does not block takes of b.
func Write(fd int, b []byte) (n int, errno unix.Errno) {
	for n < len(b) && errno == 0 {
		var m int
		m, errno = transfer(unix.SYS_WRITE, fd, b[n:])
		n += m
	}
	return n, errno
}

func transfer(number uintptr, fd int, b []byte) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall(number, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), 0
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}
