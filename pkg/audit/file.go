package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

func (l *Log) append(line []byte) error {
	if err := l.follow(); err != nil {
		return err
	}
	if l.file != nil && l.size+int64(len(line))+1 > l.maxSize {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	if l.file == nil {
		if err := l.open(); err != nil {
			return err
		}
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
	l.torn = false
	l.size += int64(n)
	return nil
}

// rotate moves each file to the next number, and removes those that are not kept.
// Without it nothing more is written, since the disk that the log may take is bounded.
func (l *Log) rotate() error {
	fd := int(l.dir.Fd())
	err := l.remove(fd)
	for i := l.files - 1; i > 0 && err == nil; i-- {
		if err = unix.Renameat(fd, numbered(FileName, i-1), fd, numbered(FileName, i)); errors.Is(err, unix.ENOENT) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("rotate audit log: %w", err)
	}
	l.closeFile()
	return nil
}

// remove takes away what has no number to move to: the only file, and those of a
// time when more were kept.
func (l *Log) remove(fd int) error {
	if l.files == 1 {
		if err := unix.Unlinkat(fd, FileName, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	for i := l.files; ; i++ {
		err := unix.Unlinkat(fd, numbered(FileName, i), 0)
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *Log) open() error {
	f, err := openLogFile(l.dir, FileName)
	if errors.Is(err, unix.ENOENT) { // the directory was removed
		if err = l.reopenDir(); err == nil {
			f, err = openLogFile(l.dir, FileName)
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
	l.file, l.id = f, idOf(st.Sys().(*syscall.Stat_t))
	l.resize(st.Size())
	return nil
}

// resize takes note of a size that is not by our own writing.
func (l *Log) resize(size int64) {
	l.size, l.torn, l.held = size, false, 0 // what was held back is asked for again
	if size > 0 {
		var last [1]byte
		if _, err := l.file.ReadAt(last[:], size-1); err != nil || last[0] != '\n' {
			l.torn = true
		}
	}
}

// fileID tells one file from another.
type fileID struct{ dev, ino uint64 }

func idOf(st *syscall.Stat_t) fileID { return fileID{uint64(st.Dev), st.Ino} }

// follow goes on in the file that readers find, if somebody has removed or
// replaced the one that is open, or its directory. A file that was cut, as
// logrotate(8) does with copytruncate, is just smaller.
func (l *Log) follow() error {
	if l.file == nil {
		return nil
	}
	var st syscall.Stat_t
	err := syscall.Lstat(filepath.Join(l.path, FileName), &st)
	if err == nil && idOf(&st) == l.id {
		if st.Size != l.size {
			l.resize(st.Size)
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

func (l *Log) closeFile() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// maxReserve bounds the room that is held back on the file system of the log.
const maxReserve = 1 << 20

// reserve holds back blocks for the lines after the next one, of size bytes: whoever
// fills the file system, which may be the agent's too, leaves them to the log. It is
// asked for again when half of it is used. The file's size stays as it is
// (fallocate(2), FALLOC_FL_KEEP_SIZE), and within maxSize. A file system without
// room, or without such a thing, is no fault: that is found when a line fails.
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

// tailSize is how much of a file's end is read to find its last event: many
// times a line.
const tailSize = 64 << 10

// lastSeq returns the number of the last event in f, or, if f holds none since
// it was just rotated, of the last one in the file before it; 0 if there is none.
func lastSeq(dir, f *os.File) (uint64, error) {
	seq, err := seqAtEnd(f)
	if err != nil || seq > 0 {
		return seq, err
	}
	before := numbered(FileName, 1)
	fd, err := unix.Openat(int(dir.Fd()), before, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("open %s in %s: %w", before, dir.Name(), linkError(err, unix.ELOOP))
	}
	old := os.NewFile(uintptr(fd), dir.Name()+"/"+before)
	defer old.Close()
	if err := ownFile(old); err != nil {
		return 0, err
	}
	return seqAtEnd(old)
}

// seqAtEnd reads f's end backwards to a line that is an event. The last line
// may have been cut short by a crash or a full disk.
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
