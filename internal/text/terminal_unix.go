//go:build linux || darwin

package text

import (
	"os"

	"golang.org/x/sys/unix"
)

// IsTerminal says whether a file is one.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), getTermios)
	return err == nil
}

// width is the columns of a terminal; 0 if it does not know yet.
func width(f *os.File) (columns int, ok bool) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(size.Col), true
}
