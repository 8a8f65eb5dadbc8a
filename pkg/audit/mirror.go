package audit

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	mirrorQueue = 1024                   // lines that may wait for a mirror that stalls
	mirrorDrain = 200 * time.Millisecond // how long close waits for them
)

// mirror copies lines to a writer that may block for ever, such as a pipe that
// nobody reads. Lines that don't fit the queue are left out: seq shows the gap.
// A nil mirror does nothing.
type mirror struct {
	lines chan []byte
	done  chan struct{}
}

func newMirror(w io.Writer) (*mirror, error) {
	if f, ok := w.(*os.File); ok {
		// A process that writes to a broken pipe as fd 1 or 2 is ended by the
		// Go runtime; on any other number it gets an error.
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
		}
		w = os.NewFile(uintptr(fd), f.Name())
	}
	m := &mirror{lines: make(chan []byte, mirrorQueue), done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for line := range m.lines {
			w.Write(line) // an error is the reader's loss: the file has the line
		}
	}()
	return m, nil
}

// send must not be called after close.
func (m *mirror) send(line []byte) {
	if m == nil {
		return
	}
	select {
	case m.lines <- line:
	default:
	}
}

func (m *mirror) close() {
	if m == nil {
		return
	}
	close(m.lines)
	select {
	case <-m.done:
	case <-time.After(mirrorDrain):
	}
}
