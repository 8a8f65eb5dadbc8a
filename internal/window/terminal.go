package window

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/privdrop"
)

// OpenTerminal makes a terminal pair of the given size. The far side belongs to uid, so that its programs can open it
// by name.
//
// Ownership follows the uid that file accesses are made under (devpts_pty_new in fs/devpts/inode.c), which a root
// without CAP_CHOWN may change for one thread.
func OpenTerminal(uid uint32, cols, rows uint16) (near, far *os.File, err error) {
	fd, err := openMaster(uid)
	if err != nil {
		return nil, nil, fmt.Errorf("make a terminal: %w", err)
	}
	near = os.NewFile(uintptr(fd), "terminal")
	if far, err = openFarSide(fd); err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: cols, Row: rows})
	}
	if err == nil {
		err = eraseWholeCharacters(int(far.Fd()))
	}
	if err != nil {
		near.Close()
		if far != nil {
			far.Close()
		}
		return nil, nil, fmt.Errorf("make a terminal: %w", err)
	}
	return near, far, nil
}

// openMaster opens the near side under uid, or, where that can't be, as we are: then the programs can use their
// terminal, but not open it by name.
func openMaster(uid uint32) (fd int, err error) {
	open := func() {
		fd, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	if privdrop.FilesAs(int(uid), -1, open); err != nil {
		open()
	}
	return fd, err
}

// openFarSide does without a path, since the name of a terminal need not lead there (TIOCGPTPEER, Linux 4.13), and
// uses one where it must.
func openFarSide(near int) (*os.File, error) {
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	if err := unix.IoctlSetPointerInt(near, unix.TIOCSPTLCK, 0); err != nil {
		return nil, fmt.Errorf("unlock: %w", err)
	}
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(near), unix.TIOCGPTPEER, flags)
	if errno == 0 {
		return os.NewFile(fd, "far side"), nil
	}
	n, err := unix.IoctlGetInt(near, unix.TIOCGPTN)
	if err != nil {
		return nil, err
	}
	return os.OpenFile("/dev/pts/"+strconv.Itoa(n), flags, 0)
}

// eraseWholeCharacters tells the line discipline that text is UTF-8.
func eraseWholeCharacters(fd int) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	t.Iflag |= unix.IUTF8
	return unix.IoctlSetTermios(fd, unix.TCSETS, t)
}
