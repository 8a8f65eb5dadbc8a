package gateway

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The runtime takes any system call for one that may block: the first one after a rest wakes up its monitor, a thread
// that then looks every 20 µs. Sockets don't block, so what is read and written here needs none
// (https://go.dev/src/runtime/proc.go, entersyscall).

// readNow reads from a socket that does not block, once.
func readNow(fd uintptr, b []byte) (int, unix.Errno) { return now(unix.SYS_READ, fd, b) }

// writeNow writes to a socket that does not block, once.
func writeNow(fd uintptr, b []byte) (int, unix.Errno) { return now(unix.SYS_WRITE, fd, b) }

func now(call, fd uintptr, b []byte) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), 0
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}
