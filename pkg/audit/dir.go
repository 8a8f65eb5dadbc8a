package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenDir opens the directory at path, made root-owned and 0755 where it is missing. Each component is opened below
// the one before it and none may be a symbolic link, so that root never writes where someone else points to.
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

// openBelow opens the directory name in parent, making it if need be. Where others may swap parent's entries, what is
// found in it proves nothing.
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

// ownDir checks that nobody but root (or the user of this process, in tests) can change what dir holds. An ancestor
// may be sticky, as /tmp is, or writable by a group, as /var/log is on some systems: its entries are checked in turn.
// Not by root's own: images give it to users that are to have no fixed uid, and so to agents, who could then move away
// what is in there.
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
