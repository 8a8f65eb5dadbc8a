package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// maxSaved is how many bytes of saved entries are read and written. Who has more writes files of a policy.
const maxSaved = 64 << 10

// saved returns what is in the file of saved entries, nil without one. Where there is not even a directory for it,
// nothing is said of those above: in some images others than root may write /var/lib.
func (w walker) saved(path string) ([]byte, error) {
	if _, err := os.Lstat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if _, err := w.names(filepath.Dir(path)); err != nil { // nobody but root may put a file there
		return nil, err
	}
	data, err := w.read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case len(data) > maxSaved:
		return nil, &FileError{path, fmt.Sprintf("larger than %d KiB", maxSaved>>10), "move lines into a file of the policy"}
	}
	return slices.Concat([]byte{}, data), nil // an empty file is one
}

// Saved is the file of saved entries while it is being changed: several keepers may share a volume.
type Saved struct {
	Data []byte // as it is

	path   string
	exists bool
	lock   *os.File
}

// OpenSaved makes the directory of path if there is none, and keeps others from writing path until it is closed. Like
// the files of a policy, it may be nobody's but root's. The error is a *FileError.
func OpenSaved(path string) (*Saved, error) {
	if f, err := (walker{vacancies: true}).open(path, false); err == nil {
		f.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	dir := filepath.Dir(path)
	if err := makeDirs(dir); err != nil {
		return nil, unwritable(path, err)
	}
	if st, err := os.Lstat(path); err == nil && st.Mode()&fs.ModeSymlink != 0 {
		return nil, &FileError{path, "a symbolic link, which a save would replace", "mount a volume at " + filepath.Dir(dir) + " in place of the link"}
	}
	// Of this file, unlike the directory, the agent can't hold the lock.
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, unwritable(path, err)
	}
	s := &Saved{path: path, lock: lock}
	if err := s.await(); err != nil {
		lock.Close()
		return nil, err
	}
	if s.Data, err = (walker{}).saved(path); err != nil {
		lock.Close()
		return nil, err
	}
	s.exists = s.Data != nil
	return s, nil
}

// makeDirs makes dir and what is missing above it, whatever the umask is.
func makeDirs(dir string) error {
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeDirs(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chmod(dir, 0o755)
}

// lockPatience is how long another keeper may take for its change.
const lockPatience = 3 * time.Second

func (s *Saved) await() error {
	for deadline := time.Now().Add(lockPatience); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return unwritable(s.path, err)
		case time.Now().After(deadline):
			return &FileError{s.path, "another agent-init is changing it", "try again"}
		}
	}
}

// Replace puts data in the place of the file, as a whole: whoever reads it, also after a crash, finds it as it was or as
// it is.
func (s *Saved) Replace(data []byte) error {
	if len(data) > maxSaved {
		return &FileError{s.path, fmt.Sprintf("it would be larger than %d KiB", maxSaved>>10), "move lines into a file of the policy"}
	}
	temp := s.path + ".new"
	err := s.write(temp, data)
	if err == nil {
		err = os.Rename(temp, s.path)
	}
	if err != nil {
		_ = os.Remove(temp) // it takes room
		return unwritable(s.path, err)
	}
	if d, err := os.Open(filepath.Dir(s.path)); err == nil { // else a crash may bring the file before it back
		_ = d.Sync()
		d.Close()
	}
	return nil
}

func (s *Saved) write(temp string, data []byte) error {
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
}

// Undo puts back what was there when it was opened.
func (s *Saved) Undo() error {
	if s.exists {
		return s.Replace(s.Data)
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unwritable(s.path, err)
	}
	return nil
}

// Close lets others write the file.
func (s *Saved) Close() error { return s.lock.Close() }

// unwritable says why the file at path can't be changed, and what would help.
func unwritable(path string, err error) error {
	home := filepath.Dir(filepath.Dir(path))
	remedy := "check the volume at " + home
	switch {
	case errors.Is(err, unix.EROFS):
		remedy = "mount a volume that can be written at " + home + " (docker run -v NAME:" + home + ")"
	case errors.Is(err, unix.EBUSY):
		remedy = "mount a volume at " + home + ", and not this one file"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		remedy = "make room on the disk of " + home
	case errors.Is(err, fs.ErrPermission):
		remedy = "make " + home + " and what is in it root's: chown -R root:root " + home
	}
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err
	} else if l := (*os.LinkError)(nil); errors.As(err, &l) {
		err = l.Err
	}
	return &FileError{path, "writing it failed: " + err.Error(), remedy}
}
