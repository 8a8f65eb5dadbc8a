package audit

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

// rotate begins another file, and removes those beyond files. Without it nothing more is written: the disk is bounded.
func (l *Log) rotate() error {
	l.first = cmp.Or(l.oldest(l.files-2), l.seq+1)
	_ = l.note() // before the file goes, so that nobody misses it; the next line notes again, and says what hinders it
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

// Rotate moves name, and each older file with a number behind it, to the next number, and replaces what is there.
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
			l.found = fmt.Sprintf("its file had %d bytes, and has %d", l.size, st.Size())
			l.resize(st.Size())
		}
		return nil
	}
	l.found = "its file was removed or replaced"
	l.closeFile()
	return l.reopenDir()
}

func (l *Log) reopenDir() error {
	dir, err := OpenDir(l.path)
	if err != nil {
		return err
	}
	if !sameFile(dir, l.dir) {
		lock, err := lockDir(dir)
		if err != nil {
			dir.Close()
			return err
		}
		l.lock.Close()
		l.lock = lock
	}
	l.dir.Close()
	l.dir = dir
	l.closeNote() // there is another in the same place
	return nil
}

func sameFile(a, b *os.File) bool {
	one, err := a.Stat()
	other, unknown := b.Stat()
	return err == nil && unknown == nil && os.SameFile(one, other)
}

// LockName is the file beside the log that its writer has locked. The agent may not open it, and so not lock it.
const LockName = "audit.lock"

// ErrInUse says that another process writes a log in the directory.
var ErrInUse = errors.New("another agent-init writes its log there")

// lockDir locks a directory of OpenDir's until what it returns is closed. A file system without locks is no fault.
func lockDir(dir *os.File) (*os.File, error) {
	f, err := OpenFile(dir, LockName, unix.O_RDWR|unix.O_CREAT, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.ENOLCK) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		err = nil
	}
	if err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrInUse
		}
		return nil, fmt.Errorf("lock %s: %w", dir.Name(), err)
	}
	return f, nil
}

func (l *Log) closeFile() (err error) {
	if l.file != nil {
		err = l.file.Close()
	}
	l.file = nil
	return err
}

const maxReserve = 1 << 20 // bounds the room that is held back on the file system of the log

// reserve holds back blocks for the lines after the next one, of size bytes: whoever fills the file system, which may
// be the agent's too, leaves them to the log. It is asked for again when half of it is used. The file's size stays as
// it is (fallocate(2), FALLOC_FL_KEEP_SIZE), and within maxSize. A file system that can't is no fault.
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

// OpenDir opens the directory at path, made root-owned and 0755 where it is missing. Each component is opened below the
// one before it and none may be a symbolic link, so that root never writes where someone else points to.
func OpenDir(path string) (*os.File, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("audit directory %q is not an absolute path", path)
	}
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /: %w", err)
	}
	dir := os.NewFile(uintptr(fd), "/")
	for _, name := range strings.FieldsFunc(filepath.Clean(path), func(r rune) bool { return r == '/' }) {
		next, err := openBelow(dir, name)
		dir.Close()
		if err != nil {
			return nil, err
		}
		dir = next
	}
	if err := ownDir(dir, false); err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// openBelow opens, or makes, the directory name in parent, whose entries nobody else may swap.
func openBelow(parent *os.File, name string) (*os.File, error) {
	if err := ownDir(parent, true); err != nil {
		return nil, err
	}
	path := filepath.Join(parent.Name(), name)
	made := unix.Mkdirat(int(parent.Fd()), name, 0o755)
	if made != nil && !errors.Is(made, unix.EEXIST) && !errors.Is(made, unix.EROFS) {
		return nil, fmt.Errorf("make directory %s: %w", path, made)
	}
	fd, err := unix.Openat(int(parent.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open directory %s: %w", path, linkError(err, unix.ENOTDIR))
	}
	dir := os.NewFile(uintptr(fd), path)
	if made == nil {
		if err := dir.Chmod(0o755); err != nil { // whatever the umask
			dir.Close()
			return nil, fmt.Errorf("set mode of %s: %w", path, err)
		}
	}
	return dir, nil
}

// ownDir checks that nobody but root (or the user of this process, in tests) can change what dir holds. An ancestor may
// be sticky, as /tmp is, or writable by a group, as /var/log is on some systems: its entries are checked in turn. Not
// by root's own: images give that to agents, who could move away what is in there.
func ownDir(dir *os.File, ancestor bool) error {
	st, err := statOwned(dir, "directory "+dir.Name())
	if err != nil {
		return err
	}
	shared := st.Mode&unix.S_IWOTH != 0 || st.Mode&unix.S_IWGRP != 0 && st.Gid == 0
	if ancestor && (!shared || st.Mode&unix.S_ISVTX != 0) {
		return nil
	}
	return unshared(st, "directory "+dir.Name())
}

func unshared(st unix.Stat_t, name string) error {
	if st.Mode&(unix.S_IWGRP|unix.S_IWOTH) != 0 {
		return fmt.Errorf("%s can be written by others (mode %04o)", name, st.Mode&0o7777)
	}
	return nil
}

// OpenFile opens name in a directory of OpenDir's, or makes it with that mode where flags have O_CREAT. It refuses all
// but a regular file of root's that has no second name and no second writer.
func OpenFile(dir *os.File, name string, flags int, mode uint32) (*os.File, error) {
	path := filepath.Join(dir.Name(), name)
	flags |= unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK // a FIFO would keep us
	fd, err := unix.Openat(int(dir.Fd()), name, flags&^unix.O_CREAT, 0)
	made := errors.Is(err, unix.ENOENT) && flags&unix.O_CREAT != 0
	if made {
		fd, err = unix.Openat(int(dir.Fd()), name, flags|unix.O_EXCL, mode)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, linkError(err, unix.ELOOP))
	}
	f := os.NewFile(uintptr(fd), path)
	if made {
		err = f.Chmod(os.FileMode(mode))
	} else {
		err = ownFile(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func ownFile(f *os.File) error {
	st, err := statOwned(f, f.Name())
	switch {
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("%s is not a regular file", f.Name())
	case st.Nlink != 1:
		return fmt.Errorf("%s has %d names (hard links)", f.Name(), st.Nlink)
	}
	return unshared(st, f.Name())
}

// statOwned refuses what belongs neither to root nor to the user of this process.
func statOwned(f *os.File, name string) (st unix.Stat_t, err error) {
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return st, fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return st, fmt.Errorf("%s belongs to uid %d, not to root", name, st.Uid)
	}
	return st, nil
}

// linkError says plainly that a symbolic link is in the way: with O_NOFOLLOW the kernel reports one as errno.
func linkError(err error, errno unix.Errno) error {
	if errors.Is(err, errno) || errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("symbolic link, or not what it should be: %w", err)
	}
	return err
}
