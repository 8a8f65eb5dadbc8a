package text

import (
	"os"

	"golang.org/x/sys/windows"
)

// IsTerminal says whether a file is one.
func IsTerminal(f *os.File) bool {
	var mode uint32
	return windows.GetConsoleMode(windows.Handle(f.Fd()), &mode) == nil
}

// width is the columns of a terminal.
func width(f *os.File) (columns int, ok bool) {
	var screen windows.ConsoleScreenBufferInfo
	if windows.GetConsoleScreenBufferInfo(windows.Handle(f.Fd()), &screen) != nil {
		return 0, false
	}
	return int(screen.Window.Right-screen.Window.Left) + 1, true
}
