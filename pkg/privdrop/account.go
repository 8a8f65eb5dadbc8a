package privdrop

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// dotDirs are the directories below a home that agents and their tools write
// to. They are not walked into: that would copy a whole image layer up.
var dotDirs = [...]string{
	".", ".config", ".cache", ".local", ".local/share", ".local/state", ".local/bin",
	".claude", ".codex", ".gemini", ".npm", ".cargo", ".ssh", ".gnupg",
}

// AccountOptions says what EnsureAccount may touch.
type AccountOptions struct {
	PasswdFile string // default /etc/passwd
	HomeRoot   string // default /home: homes that are not below it are left alone
}

// ErrReadOnly is returned by EnsureAccount if the file system does not let it
// write. The identity works without an entry, for most programs.
var ErrReadOnly = errors.New("file system is read-only")

// EnsureAccount gives id a passwd entry and makes its home directory usable:
// the directory itself and the ones in it that agents write to are given to
// id, and the engine's volumes that are mounted in it. It goes no deeper, follows
// no link and does not cross another mount point, whose files may be the host's. Its errors are all worth no more than a
// warning; errors.Is finds ErrReadOnly and errors.As a *CapabilityError among
// them.
func EnsureAccount(id Identity, o AccountOptions) error {
	if err := id.check(); err != nil {
		return err
	}
	o.PasswdFile = cmp.Or(o.PasswdFile, "/etc/passwd")
	o.HomeRoot = cmp.Or(o.HomeRoot, "/home")
	return errors.Join(ensureEntry(id, o.PasswdFile), ensureHome(id, o.HomeRoot))
}

// ensureEntry makes file know id.UID.
func ensureEntry(id Identity, file string) error {
	data, err := readBounded(file)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	users, err := parsePasswd(data)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	if u, ok := (accounts{users: users}).byUID(id.UID); ok && u.name == id.Name && u.gid == id.GID {
		return nil
	}
	text, err := withEntry(data, id)
	if err != nil {
		return err
	}
	if err := replaceFile(file, text); err != nil {
		if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("add uid %d to %s: %w", id.UID, file, ErrReadOnly)
		}
		return fmt.Errorf("add uid %d to %s: %w", id.UID, file, err)
	}
	return nil
}

// withEntry returns the passwd file data with the account of id: the line of
// that name is changed, or one is added. There is never a second line of the
// name, since the first would hide it.
func withEntry(data []byte, id Identity) ([]byte, error) {
	for _, field := range []string{id.Name, id.Home, id.Shell} {
		if strings.ContainsAny(field, ":\n\x00") {
			return nil, fmt.Errorf("%q cannot be a field of a passwd file", field)
		}
	}
	if !validName(id.Name) {
		return nil, fmt.Errorf("%q cannot be the name of an account", id.Name)
	}
	var out bytes.Buffer
	written := false
	for line := range bytes.Lines(data) {
		text := strings.TrimSuffix(string(line), "\n")
		if u, ok := parseAccount(text); ok && u.name == id.Name && !written {
			f := strings.Split(text, ":")
			f[2], f[3] = strconv.FormatUint(uint64(id.UID), 10), strconv.FormatUint(uint64(id.GID), 10)
			line = []byte(strings.Join(f, ":") + "\n")
			written = true
		}
		out.Write(line)
	}
	if !written {
		if n := out.Len(); n > 0 && out.Bytes()[n-1] != '\n' {
			out.WriteByte('\n')
		}
		fmt.Fprintf(&out, "%s:x:%d:%d::%s:%s\n", id.Name, id.UID, id.GID, id.Home, id.Shell)
	}
	return out.Bytes(), nil
}

// replaceFile puts text in the place of file at once, with its mode. A link is
// not followed but refused.
func replaceFile(file string, text []byte) (err error) {
	mode := os.FileMode(0o644)
	info, err := os.Lstat(file)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return errors.New("not a regular file")
	case err == nil:
		mode = info.Mode().Perm()
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".agent-init-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tmp.Close()
			os.Remove(tmp.Name())
		}
	}()
	if _, err = tmp.Write(text); err != nil {
		return err
	}
	if err = tmp.Chmod(mode); err != nil {
		return err
	}
	if err = tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

// ensureHome makes id's home directory if there is none, and gives it to id.
func ensureHome(id Identity, root string) error {
	home := filepath.Clean(id.Home)
	if rel, err := filepath.Rel(root, home); err != nil || rel == "." || strings.HasPrefix(rel, "..") {
		return nil // such as /nonexistent or /usr/sbin, which must stay root's
	}
	return errors.Join(giveVolumes(id, home), giveHome(id, home))
}

func giveHome(id Identity, home string) error {
	if err := os.Mkdir(home, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) {
			return fmt.Errorf("make %s: %w", home, ErrReadOnly)
		}
		return fmt.Errorf("make %s: %w", home, err)
	}
	var st unix.Stat_t
	own := unix.Lstat(home, &st) == nil && st.Uid == id.UID
	for _, name := range dotDirs {
		err := giveDir(home, name, id)
		if own && errors.Is(err, unix.EACCES) {
			continue // closed to a root without DAC_OVERRIDE, and id's already
		}
		if errors.Is(err, errUsable) {
			return nil // and what is in it stays whose it is
		}
		if err != nil {
			return fmt.Errorf("give %s to uid %d: %w", filepath.Join(home, name), id.UID, err)
		}
	}
	return nil
}

// giveDir gives the directory name in home to id, if it is one and id does not
// own it. It opens every component by itself and checks what it has opened, so
// nobody can swap a link or a mount in.
func giveDir(home, name string, id Identity) error {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Open(home, flags, 0)
	if err != nil {
		return err
	}
	defer func() { unix.Close(fd) }()
	for component := range strings.SplitSeq(name, "/") {
		if component == "." {
			continue
		}
		next, err := unix.Openat(fd, component, flags, 0)
		switch {
		case err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP:
			return nil // not there, or not a directory: none of ours
		case err != nil:
			return err
		}
		unix.Close(fd)
		fd = next
		if mounted(fd) {
			return nil
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Uid == id.UID {
		return nil
	}
	if mounted(fd) {
		if usable(st, id) {
			return errUsable
		}
		return fmt.Errorf("it is a mount that belongs to uid %d: change its owner outside", st.Uid)
	}
	err = unix.Fchownat(fd, "", int(id.UID), int(id.GID), unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW)
	switch err {
	case unix.EPERM:
		return missing(unix.CAP_CHOWN)
	case unix.EROFS:
		return ErrReadOnly
	}
	return err
}

// errUsable is for a mount of somebody else's that needs no other owner.
var errUsable = errors.New("a mount that can be written already")

// usable says whether id, who does not own the directory, may all the same put
// files into it. Volumes of Kubernetes are made so, with fsGroup or without.
func usable(st unix.Stat_t, id Identity) bool {
	if st.Gid == id.GID {
		return st.Mode&0o070 == 0o070
	}
	return st.Mode&0o007 == 0o007
}

// mounted reports whether fd is the root of a mount, or might be: kernels
// before 5.8 do not say.
func mounted(fd int) bool {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st)
	return err != nil || st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
