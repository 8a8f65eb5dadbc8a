package audit

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
)

// Reader reads a log from a line on, at its own pace, into the next file after each rotation. A file that it reads is
// there until it has read it, also if the log has removed it.
type Reader struct {
	path string
	open Opener
	f    *os.File
	r    *bufio.Reader
	rest []byte
	last uint64
	lost uint64
}

// Opener opens a file of the log for reading, as os.Open does.
type Opener func(path string) (*os.File, error)

// IsFile says whether name is one that a file of a log may have.
func IsFile(name string) bool {
	number, old := strings.CutPrefix(name, FileName+".")
	n, err := strconv.Atoi(number)
	return name == FileName || old && err == nil && n > 0 && n <= 1e6 && strconv.Itoa(n) == number
}

// Oldest is the number of the oldest line of a log, 0 if it has none.
func Oldest(path string) (uint64, error) {
	files, err := openAll(path, os.Open)
	defer closeAll(files)
	if err != nil {
		return 0, err
	}
	seq, _ := firstOf(files[len(files)-1])
	return seq, nil
}

// ReadAfter begins behind the line of that number. Where it is gone, what was between it and the oldest line is Lost. The
// path is looked at as it is; what opens files is asked for each.
func ReadAfter(path string, last uint64, open Opener) (*Reader, error) {
	files, err := openAll(path, open)
	if err != nil {
		closeAll(files)
		return nil, err
	}
	start := len(files) - 1
	for i, f := range files { // the newest that begins before what is wanted
		if first, ok := firstOf(f); ok && first <= last+1 {
			start = i
			break
		}
	}
	r := &Reader{path: path, open: open, f: files[start], r: bufio.NewReaderSize(files[start], 64<<10), last: last}
	files[start] = nil
	closeAll(files)
	return r, nil
}

// firstOf is the number of a file's first line.
func firstOf(f *os.File) (seq uint64, ok bool) {
	_, _ = eachLine(bufio.NewReaderSize(io.NewSectionReader(f, 0, 4*maxEncoded), 4*maxEncoded), func(line []byte) bool {
		var l link
		l, ok = linkOf(line)
		seq = l.Seq
		return false
	})
	return seq, ok
}

// Close ends the reading.
func (r *Reader) Close() error { return r.f.Close() }

// Lost is how many events went with their file before they were read. Those that were never written are told by a line.
func (r *Reader) Lost() uint64 { return r.lost }

// Next returns the next line that is an event, which is valid until it is called again; io.EOF: there is none yet.
func (r *Reader) Next() ([]byte, Event, error) {
	var next *os.File // what follows: it is found before the file is read to its end, since nothing is appended to that then
	defer func() {
		if next != nil {
			next.Close()
		}
	}()
	for {
		line, err := r.line()
		switch {
		case err == nil:
			if e, err := Decode(line); err == nil && e.Seq > r.last {
				r.count(e)
				return line, e, nil
			}
		case !errors.Is(err, io.EOF):
			return nil, Event{}, err
		case next != nil:
			r.f.Close()
			r.f, r.rest, next = next, nil, nil
			r.r.Reset(r.f)
		case cut(r.f):
			r.rest = nil
			r.r.Reset(r.f)
		default:
			if next, _ = newer(r.path, r.f, r.open); next == nil {
				return nil, Event{}, io.EOF
			}
		}
	}
}

// count notes what is missing before e. A line that says of events that they were not written stands for that many.
func (r *Reader) count(e Event) {
	gap := e.Seq - r.last - 1
	if unwritten(e) {
		gap -= min(gap, e.Suppressed)
	}
	r.lost, r.last = r.lost+gap, e.Seq
}

// line is the next line with an end. Of one that is longer than any event, only the end is left.
func (r *Reader) line() ([]byte, error) {
	for {
		piece, err := r.r.ReadSlice('\n')
		r.rest = append(r.rest, piece...)
		switch {
		case err == nil:
			line := r.rest
			r.rest = r.rest[:0]
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
		r.rest = r.rest[:0]
	}
}
