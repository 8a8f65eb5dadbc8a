package audit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Lines calls do with every line of the log at path, oldest first, older files included, until do returns false. A line
// is valid until do returns, and may be no event, or half of one.
func Lines(path string, do func(line []byte) bool) error {
	files, err := openAll(path)
	defer closeAll(files)
	more := true
	for i := len(files) - 1; i >= 0 && more && err == nil; i-- {
		more, err = eachLine(bufio.NewReaderSize(files[i], 4*maxEncoded), do)
	}
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	return nil
}

// openAll opens the files of a log, newest first. The log may be rotated meanwhile: a file that has become the next one
// is met again there, and while the files are being renamed one number is missing.
func openAll(path string) (files []*os.File, err error) {
	for range 10 { // it may be rotated each time that we look
		if files, err = openThere(path); err != nil || len(files) > 0 {
			return files, err
		}
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: unix.ENOENT}
}

// openThere opens those of the files that it finds.
func openThere(path string) (files []*os.File, err error) {
	for i, missing := 0, 0; missing < 2; i++ {
		f, err := os.Open(numbered(path, i))
		if errors.Is(err, fs.ErrNotExist) {
			missing++
			continue
		}
		if err != nil {
			return files, err
		}
		missing = 0
		files = slices.DeleteFunc(files, func(g *os.File) bool { return same(f, g.Stat) && g.Close() == nil })
		files = append(files, f)
	}
	return files, nil
}

func same(f *os.File, stat func() (os.FileInfo, error)) bool {
	mine, err := f.Stat()
	other, err2 := stat()
	return err == nil && err2 == nil && os.SameFile(mine, other)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// eachLine calls do with the lines of r that have an end and are no longer than an event.
func eachLine(r *bufio.Reader, do func([]byte) bool) (more bool, err error) {
	long := false
	for {
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			long = true
			continue
		case errors.Is(err, io.EOF):
			return true, nil
		case err != nil:
			return false, err
		}
		if !long && !do(line) {
			return false, nil
		}
		long = false
	}
}

const followEvery = 200 * time.Millisecond // how often a followed file is looked at

// Follow calls do with every line that is appended to the log after it has closed begun, until ctx ends. It goes on in
// the next file after a rotation, and from the beginning of one that is cut (logrotate(8), copytruncate).
func Follow(ctx context.Context, path string, begun chan<- struct{}, do func(line []byte)) error {
	f, err := os.Open(path)
	defer func() { f.Close() }()
	if err == nil {
		_, err = f.Seek(0, io.SeekEnd)
	}
	if err != nil {
		return fmt.Errorf("follow the audit log: %w", err)
	}
	close(begun)
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	var rest []byte
	r := bufio.NewReaderSize(f, 64<<10)
	for {
		// A new file is looked for before the old one is read to its end: nothing is appended to that any more.
		next, rotated := newer(path, f)
		for err = nil; err == nil || errors.Is(err, bufio.ErrBufferFull); {
			var piece []byte
			piece, err = r.ReadSlice('\n')
			if rest = append(rest, piece...); err == nil {
				do(rest)
			}
			if err == nil || len(rest) > maxEncoded { // or it is no event
				rest = nil
			}
		}
		switch {
		case rotated:
			f.Close()
			f, rest = next, nil
			r.Reset(f)
		case cut(f):
			rest = nil
			r.Reset(f)
		default:
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	}
}

// cut says whether f has become shorter than what was read of it. Then it is read from its beginning.
func cut(f *os.File) bool {
	st, err := f.Stat()
	at, err2 := f.Seek(0, io.SeekCurrent)
	if err != nil || err2 != nil || st.Size() >= at {
		return false
	}
	_, err = f.Seek(0, io.SeekStart)
	return err == nil
}

// newer opens the file that follows f, which was path, if f has been rotated.
func newer(path string, f *os.File) (*os.File, bool) {
	current, err := os.Stat(path)
	if err != nil || same(f, func() (os.FileInfo, error) { return current, nil }) {
		return nil, false
	}
	files, err := openAll(path)
	i := slices.IndexFunc(files, func(g *os.File) bool { return same(f, g.Stat) })
	if err != nil || i == 0 {
		closeAll(files)
		return nil, false
	}
	if i < 0 { // it is gone, with those before it
		i = len(files)
	}
	next := files[i-1]
	closeAll(slices.Delete(files, i-1, i))
	return next, true
}

// Tail calls do with the last lines of the log at path, of so many bytes together at most. Older files are not read.
func Tail(path string, bytes int64, do func(line []byte)) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	from := max(0, st.Size()-bytes)
	r := bufio.NewReaderSize(io.NewSectionReader(f, from, st.Size()-from), 4*maxEncoded)
	whole := from == 0 // the first line is, else it is left out
	_, err = eachLine(r, func(line []byte) bool {
		if whole {
			do(line)
		}
		whole = true
		return true
	})
	return err
}
