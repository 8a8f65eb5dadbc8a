package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// FileName is the current file in the log's directory. Older ones have a number behind it; ".1" is the youngest.
const FileName = "audit.jsonl"

// Unwritten begins the reason of an event that stands for others, which have no line: as many as it suppressed.
const Unwritten = "events could not be written"

// Options say where a Log writes. The zero value of each but Dir is its default.
type Options struct {
	Dir     string    // absolute; made root-owned, 0755, if missing
	MaxSize int64     // bytes per file; default 16 MiB, at least maxEncoded+1
	Files   int       // kept, the current one included; default 3
	Mirror  io.Writer // gets a copy of each line; may stall or fail, which it is told of when it goes on
}

// Log appends events to a file that is rotated by size. It never fails and never waits for a reader, only for the disk,
// one event after the other. Events that can't be written are counted, leave a gap in seq, and are reported as soon as
// a write succeeds again. It is safe for concurrent use.
type Log struct {
	path    string // of dir
	dir     *os.File
	lock    *os.File // of dir, held until the log is closed
	maxSize int64
	files   int // that are kept, the current one included
	mirror  *mirror
	now     func() time.Time
	changed chan struct{}

	mu   sync.Mutex
	file *os.File    // nil after a failed rotation, until it can be opened again
	id   os.FileInfo // of file
	size int64
	held int64 // the file has blocks up to here, see reserve; -1: its file system holds none back
	seq  uint64
	torn bool // the file doesn't end with a newline
	lost uint64
	err  error // why events were lost; nil once a write succeeded

	first   uint64 // the number of the oldest line that is kept; 0: there is none
	head    Head   // the last line that was written
	noted   *os.File
	unnoted error  // why the head could not be noted
	found   string // what is not as it was left, until a line says so
	finds   uint64 // how many lines have said so
}

// Open opens the log in o.Dir and goes on counting where an earlier Log ended. It refuses directories and files that
// anybody but root could have made, replaced or written to, and symbolic links in the path. If another process has a
// Log there, as on a volume that two containers share, the error is ErrInUse.
func Open(o Options) (*Log, error) {
	dir, err := OpenDir(o.Dir)
	if err != nil {
		return nil, err
	}
	l := &Log{path: dir.Name(), dir: dir, maxSize: max(cmp.Or(o.MaxSize, 16<<20), maxEncoded+1), files: max(cmp.Or(o.Files, 3), 1),
		now: time.Now, changed: make(chan struct{}, 1)}
	if l.lock, err = lockDir(dir); err == nil {
		err = l.open()
	}
	if err == nil {
		err = l.resume()
	}
	if err == nil && o.Mirror != nil {
		l.mirror, err = newMirror(o.Mirror)
	}
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// Close closes the file; it waits a moment for the mirror. Later writes are lost.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mirror.close()
	l.mirror = nil
	l.closeNote()
	defer l.lock.Close()                             // behind the last line
	return errors.Join(l.closeFile(), l.dir.Close()) // no file can be opened in a closed directory
}

// Err says why events, or what the last of them was, are being lost, or nil if the last write succeeded.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.err, l.unnoted)
}

// Found is how many times the log was found not to be as it was left.
func (l *Log) Found() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.finds
}

// Write records e with the next seq and the current time. It is a Recorder.
func (l *Log) Write(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.report(); l.err != nil {
		l.seq++ // e's, for the gap
		l.lost++
		return
	}
	if l.err = l.write(e); l.err != nil {
		l.lost++
		l.tell()
	}
	l.report() // what was found in writing
}

// Changed gets a word whenever Err begins or ends to say something.
func (l *Log) Changed() <-chan struct{} { return l.changed }

func (l *Log) tell() {
	select {
	case l.changed <- struct{}{}:
	default: // there is a word already
	}
}

// Retry reports events that were lost, if that can be written now. It is for a time in which nothing happens.
func (l *Log) Retry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report()
	l.mirror.retry()
	if l.file != nil {
		l.reserve(0)
	}
}

func (l *Log) report() {
	if l.lost == 0 {
		l.tellFound()
		return
	}
	if err := l.write(Event{Kind: Guard, Verdict: Fault, Suppressed: l.lost, Reason: fmt.Sprintf("%s: %v", Unwritten, l.err)}); err != nil {
		l.err = err
		return
	}
	l.lost, l.err = 0, nil
	l.tell()
	l.tellFound()
}

// tellFound has a line say that the log is not as it was left.
func (l *Log) tellFound() {
	if l.found == "" {
		return
	}
	found := l.found
	if l.err = l.write(Event{Kind: Guard, Verdict: Fault, Reason: Tampered + ": " + found}); l.err != nil {
		l.lost++ // and it is said later
		l.tell()
	} else {
		l.finds++
		if l.found == found {
			l.found = ""
		}
		l.tell()
	}
}

// write stamps and appends one line. A report of lost events takes no seq: the gap is as wide as their number.
func (l *Log) write(e Event) error {
	e.Seq, e.Time, e.Prev = l.seq+1, l.now(), l.head.Hash
	line := append(Encode(e), '\n')
	err := l.append(line)
	if err == nil || l.lost == 0 {
		l.seq++
	}
	if err == nil {
		l.chain(e.Seq, line[:len(line)-1])
		l.mirror.send(line)
	}
	return err
}

// numbered is the name of a file of the log at path; 0 is the current one.
func numbered(path string, i int) string {
	if i == 0 {
		return path
	}
	return fmt.Sprintf("%s.%d", path, i)
}

const (
	mirrorQueue = 1024                   // lines that may wait for a mirror that stalls
	mirrorDrain = 200 * time.Millisecond // how long close waits for them
)

// mirror copies lines to a writer that may block for ever, such as a pipe that nobody reads, or fail, such as a file on
// a full disk. Lines that don't fit the queue, or that can't be written, are left out and counted: the next one that
// can be written stands behind a line that says how many. A nil mirror does nothing.
type mirror struct {
	w     io.Writer
	lines chan []byte // nil: write the count, if there is one
	lost  atomic.Uint64
	torn  bool // the last line was cut short; of the writing goroutine
	done  chan struct{}
}

func newMirror(w io.Writer) (*mirror, error) {
	if f, ok := w.(*os.File); ok {
		// A broken pipe as fd 1 or 2 ends a process in Go's runtime; on any other number it is an error.
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

// unmirrored begins the reason of a line that only a mirror has. It has no seq: the file has those events.
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
