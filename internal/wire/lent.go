package wire

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// LentPair returns both ends of a way that connections take between the guard and the broker. The keeper has both, and
// lends them: what was sent waits for who comes next, and either side may end and come back.
func LentPair() (guards, brokers *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	// Room for some hundred connections that wait for a broker. Without it there is the system's for some fifty.
	_ = unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 1<<20)
	return os.NewFile(uintptr(fds[0]), "guard's end"), os.NewFile(uintptr(fds[1]), "broker's end"), nil
}
