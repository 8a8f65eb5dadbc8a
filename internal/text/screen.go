package text

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Screen writes lines until one can't be written.
type Screen struct {
	W   io.Writer
	Err error
}

// Line writes one line.
func (s *Screen) Line(format string, args ...any) {
	if s.Err == nil {
		_, s.Err = fmt.Fprintf(s.W, format+"\n", args...)
	}
}

// Row writes a line that begins with a name, in a column of its own.
func (s *Screen) Row(name, format string, args ...any) {
	s.Line("  %-12s "+format, append([]any{name}, args...)...)
}

// JSON writes v for programs.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// IsTerminal says whether a file is one.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
