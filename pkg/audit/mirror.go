package audit

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	mirrorQueue = 1024                   // lines that may wait for a mirror that stalls
	mirrorDrain = 200 * time.Millisecond // how long close waits for them
)

// mirror copies lines to a writer that may block for ever, such as a pipe that nobody reads, or fail, such as a file
// on a full disk. Lines that don't fit the queue, or that can't be written, are left out and counted: the next one
// that can be written stands behind a line that says how many. A nil mirror does nothing.
type mirror struct {
	w     io.Writer
	lines chan []byte // nil: write the count, if there is one
	lost  atomic.Uint64
	torn  bool // the last line was cut short; of the writing goroutine
	done  chan struct{}
}

func newMirror(w io.Writer) (*mirror, error) {
	if f, ok := w.(*os.File); ok {
		// A process that writes to a broken pipe as fd 1 or 2 is ended by the Go runtime; on any other number it gets
		// an error.
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
		}
		w = os.NewFile(uintptr(fd), f.Name())
	}
	m := &mirror{w: w, lines: make(chan []byte, mirrorQueue), done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for line := range m.lines {
			m.copy(line)
		}
	}()
	return m, nil
}

// unmirrored is how the reason of a line begins that only a mirror has. It has no seq: the file has a line for each of
// those events.
const unmirrored = "events are in the file and not here"

func (m *mirror) copy(line []byte) {
	if n := m.lost.Swap(0); n > 0 {
		e := Event{Time: time.Now(), Kind: Guard, Verdict: Fault, Suppressed: n, Reason: unmirrored + ": whoever reads this did not in time"}
		if !m.write(append(Encode(e), '\n')) {
			m.lost.Add(n)
		}
	}
	if line != nil && !m.write(line) {
		m.lost.Add(1)
	}
}

func (m *mirror) write(line []byte) bool {
	if m.torn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := m.w.Write(line)
	m.torn = err != nil && (n > 0 || m.torn)
	return err == nil
}

// send must not be called after close.
func (m *mirror) send(line []byte) {
	if m != nil {
		select {
		case m.lines <- line:
		default:
			m.lost.Add(1)
		}
	}
}

// retry has the count written in a time in which there are no lines.
func (m *mirror) retry() {
	if m != nil && m.lost.Load() > 0 {
		select {
		case m.lines <- nil:
		default: // a line will
		}
	}
}

func (m *mirror) close() {
	if m != nil {
		close(m.lines)
		select {
		case <-m.done:
		case <-time.After(mirrorDrain):
		}
	}
}
