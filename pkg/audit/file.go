package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

func (l *Log) append(line []byte) error {
	err := l.follow()
	if err == nil && l.file != nil && l.size+int64(len(line))+1 > l.maxSize {
		err = l.rotate()
	}
	if err == nil && l.file == nil {
		err = l.open()
	}
	if err != nil {
		return err
	}
	if l.torn {
		line = append([]byte{'\n'}, line...)
	}
	l.reserve(int64(len(line)))
	n, err := l.file.Write(line)
	if err != nil {
		// A full disk can cut a line short: take the part back, or end it.
		l.torn = l.torn || n > 0
		if n > 0 && l.file.Truncate(l.size) == nil {
			l.torn, n, l.held = false, 0, 0
		}
		l.size += int64(n)
		return fmt.Errorf("write audit log: %w", err)
	}
	l.torn, l.size = false, l.size+int64(n)
	return nil
}

// rotate begins another file, and removes those that are not kept: the only one, and those of a time when more were
// kept. Without it nothing more is written, since the disk that the log may take is bounded.
func (l *Log) rotate() error {
	var err error
	if l.files == 1 {
		err = there(unix.Unlinkat(int(l.dir.Fd()), FileName, 0))
	}
	for i := l.files; err == nil; i++ {
		err = unix.Unlinkat(int(l.dir.Fd()), numbered(FileName, i), 0)
	}
	if err = there(err); err == nil {
		err = Rotate(l.dir, FileName, l.files)
	}
	if err != nil {
		return fmt.Errorf("rotate audit log: %w", err)
	}
	l.closeFile()
	return nil
}

// Rotate moves name, and the older files with a number behind it, to the next number; what has that of files is
// replaced.
func Rotate(dir *os.File, name string, files int) error {
	for i := files - 1; i > 0; i-- {
		if err := there(unix.Renameat(int(dir.Fd()), numbered(name, i-1), int(dir.Fd()), numbered(name, i))); err != nil {
			return fmt.Errorf("put %s aside: %w", filepath.Join(dir.Name(), numbered(name, i-1)), err)
		}
	}
	return nil
}

// there leaves out that a file is missing.
func there(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func (l *Log) open() error {
	const flags = unix.O_RDWR | unix.O_APPEND | unix.O_CREAT
	f, err := OpenFile(l.dir, FileName, flags, 0o644)
	if errors.Is(err, unix.ENOENT) { // the directory was removed
		if err = l.reopenDir(); err == nil {
			f, err = OpenFile(l.dir, FileName, flags, 0o644)
		}
	}
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	l.file, l.id = f, st
	l.resize(st.Size())
	return nil
}

func (l *Log) resize(size int64) {
	l.size, l.torn, l.held = size, false, 0 // what was held back is asked for again
	if size > 0 {
		var last [1]byte
		_, err := l.file.ReadAt(last[:], size-1)
		l.torn = err != nil || last[0] != '\n'
	}
}

// follow goes on in the file that readers find, if somebody has removed or replaced the one that is open, or its
// directory. A file that was cut, as logrotate(8) does with copytruncate, is just smaller.
func (l *Log) follow() error {
	if l.file == nil {
		return nil
	}
	if st, err := os.Lstat(filepath.Join(l.path, FileName)); err == nil && os.SameFile(st, l.id) {
		if st.Size() != l.size {
			l.resize(st.Size())
		}
		return nil
	}
	l.closeFile()
	return l.reopenDir()
}

func (l *Log) reopenDir() error {
	dir, err := OpenDir(l.path)
	if err != nil {
		return err
	}
	l.dir.Close()
	l.dir = dir
	return nil
}

func (l *Log) closeFile() (err error) {
	if l.file != nil {
		err = l.file.Close()
	}
	l.file = nil
	return err
}

// maxReserve bounds the room that is held back on the file system of the log.
const maxReserve = 1 << 20

// reserve holds back blocks for the lines after the next one, of size bytes: whoever fills the file system, which may
// be the agent's too, leaves them to the log. It is asked for again when half of it is used. The file's size stays as
// it is (fallocate(2), FALLOC_FL_KEEP_SIZE), and within maxSize. A file system without room, or without such a thing,
// is no fault: that is found when a line fails.
func (l *Log) reserve(size int64) {
	room := min(maxReserve, l.maxSize/4)
	end := min(l.size+size+room, l.maxSize)
	if l.held < 0 || l.held >= end || l.held-l.size-size >= room/2 {
		return
	}
	err := unix.Fallocate(int(l.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, l.size, end-l.size)
	switch {
	case err == nil:
		l.held = end
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		l.held = -1
	}
}

// tailSize is how much of a file's end is read to find its last event: many times a line.
const tailSize = 64 << 10

// lastSeq returns the number of the last event in f, or, if f holds none since it was just rotated, of the last one in
// the file before it; 0 if there is none.
func lastSeq(dir, f *os.File) (uint64, error) {
	seq, err := seqAtEnd(f)
	if err != nil || seq > 0 {
		return seq, err
	}
	old, err := OpenFile(dir, numbered(FileName, 1), unix.O_RDONLY, 0)
	if err != nil {
		return 0, there(err)
	}
	defer old.Close()
	return seqAtEnd(old)
}

// seqAtEnd reads f's end backwards to a line that is an event. The last line may have been cut short by a crash or a
// full disk.
func seqAtEnd(f *os.File) (uint64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	tail := make([]byte, min(st.Size(), tailSize))
	if _, err := f.ReadAt(tail, st.Size()-int64(len(tail))); err != nil && len(tail) > 0 {
		return 0, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	for _, line := range slices.Backward(bytes.Split(tail, []byte{'\n'})) {
		var e struct {
			Seq uint64 `json:"seq"`
		}
		if json.Unmarshal(line, &e) == nil && e.Seq > 0 {
			return e.Seq, nil
		}
	}
	return 0, nil
}
