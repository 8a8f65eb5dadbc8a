package window

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/privdrop"
)

// listenFor makes a listening socket that root and the group gid may connect
// to. Without CAP_CHOWN, the group is that of the thread that makes it.
func listenFor(path string, gid uint32) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	privdrop.FilesAs(-1, int(gid), func() { err = unix.Bind(fd, &unix.SockaddrUnix{Name: path}) })
	if err == nil {
		err = unix.Chmod(path, 0o660)
	}
	if err == nil {
		err = unix.Listen(fd, 64)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "session"), nil
}
