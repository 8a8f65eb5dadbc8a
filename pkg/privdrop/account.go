package privdrop

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// dotDirs are what agents and their tools write to in a home. Walking in would copy a whole image layer up.
var dotDirs = [...]string{
	".", ".config", ".cache", ".local", ".local/share", ".local/state", ".local/bin",
	".claude", ".codex", ".gemini", ".npm", ".cargo", ".ssh", ".gnupg",
}

// ErrReadOnly is returned by EnsureAccount if the file system does not let it
// write. The identity works without an entry, for most programs.
var ErrReadOnly = errors.New("file system is read-only")

// EnsureAccount gives id a passwd entry, and its home directory with the ones in it that agents write to, and the
// engine's volumes that are mounted there. It goes no deeper, follows no link and crosses no other mount point, whose
// files may be the host's. Its errors are worth no more than a warning, an ErrReadOnly and a *CapabilityError too.
func EnsureAccount(id Identity) error { return ensureAccount(id, "/etc/passwd", "/home") }

// ensureAccount leaves homes alone that are not below root.
func ensureAccount(id Identity, passwdFile, root string) error {
	if err := id.Check(); err != nil {
		return err
	}
	home := filepath.Clean(id.Home)
	if rel, err := filepath.Rel(root, home); err != nil || rel == "." || strings.HasPrefix(rel, "..") {
		return ensureEntry(id, passwdFile) // such as /nonexistent or /usr/sbin, which must stay root's
	}
	return errors.Join(ensureEntry(id, passwdFile), giveVolumes(id, home), giveHome(id, home))
}

// ensureEntry makes file know id.UID.
func ensureEntry(id Identity, file string) error {
	users, data, err := readEntries(file, passwdFields)
	if err != nil {
		return err
	}
	if u, ok := first(users, numbered(id.UID)); ok && u.name == id.Name && u.gid == id.GID {
		return nil
	}
	text, err := withEntry(data, id)
	if err != nil {
		return err
	}
	if err := readOnlyOr(replaceFile(file, text), unix.EACCES, unix.EPERM, unix.EBUSY); err != nil {
		return fmt.Errorf("add uid %d to %s: %w", id.UID, file, err)
	}
	return nil
}

// readOnlyOr puts ErrReadOnly in the place of an error that means it, as those of also do here.
func readOnlyOr(err error, also ...error) error {
	if slices.ContainsFunc(append(also, unix.EROFS), func(e error) bool { return errors.Is(err, e) }) {
		return ErrReadOnly
	}
	return err
}

// withEntry returns the passwd file data with the account of id: the line of that name is
// changed, or one is added. A second line of the name would be hidden by the first.
func withEntry(data []byte, id Identity) ([]byte, error) {
	if fields := id.Name + id.Home + id.Shell; !validName(id.Name) || strings.ContainsAny(fields, ":\n\x00") {
		return nil, fmt.Errorf("%q, %q and %q can't be fields of a passwd file", id.Name, id.Home, id.Shell)
	}
	var out bytes.Buffer
	written := false
	for line := range bytes.Lines(data) {
		text := strings.TrimSuffix(string(line), "\n")
		if u, ok := parseEntry(text, passwdFields); ok && u.name == id.Name && !written {
			f := strings.Split(text, ":")
			f[2], f[3] = fmt.Sprint(id.UID), fmt.Sprint(id.GID)
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

// replaceFile puts text in the place of file at once, with its mode. A link is not followed but refused.
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
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}

// giveHome makes id's home directory if there is none, and gives it to id.
func giveHome(id Identity, home string) error {
	if err := readOnlyOr(os.Mkdir(home, 0o750), unix.EACCES); err != nil && !errors.Is(err, os.ErrExist) {
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

// openHere opens a directory to look at, and no link to one.
const openHere = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// giveDir gives the directory name in home to id, if it is one. It opens every component by
// itself and checks what it has opened, so nobody can swap a link or a mount in.
func giveDir(home, name string, id Identity) error {
	fd, err := unix.Open(home, openHere, 0)
	if err != nil {
		return err
	}
	defer func() { unix.Close(fd) }()
	st, err := look(fd)
	for component := range strings.SplitSeq(name, "/") {
		if component == "." {
			continue
		}
		next, failed := unix.Openat(fd, component, openHere, 0)
		switch {
		case failed == unix.ENOENT || failed == unix.ENOTDIR || failed == unix.ELOOP:
			return nil // not there, or not a directory: none of ours
		case failed != nil:
			return failed
		}
		unix.Close(fd)
		fd = next
		if st, err = look(fd); err != nil || mounted(st) {
			return nil
		}
	}
	switch {
	case err != nil || st.Uid == id.UID:
		return err
	case mounted(st) && usable(st, id):
		return errUsable
	case mounted(st):
		return fmt.Errorf("it is a mount that belongs to uid %d: change its owner outside", st.Uid)
	}
	return give(fd, id)
}

// give makes id the owner of what fd is open on.
func give(fd int, id Identity) error {
	err := unix.Fchownat(fd, "", int(id.UID), int(id.GID), unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.EPERM {
		return missing(unix.CAP_CHOWN)
	}
	return readOnlyOr(err)
}

// errUsable is for a mount of somebody else's that needs no other owner.
var errUsable = errors.New("a mount that can be written already")

// usable says whether id, who does not own the directory, may all the same put
// files into it. Volumes of Kubernetes are made so, with fsGroup or without.
func usable(st unix.Statx_t, id Identity) bool {
	if st.Gid == id.GID {
		return st.Mode&0o070 == 0o070
	}
	return st.Mode&0o007 == 0o007
}

// look says what fd is open on, and in which mount.
func look(fd int) (st unix.Statx_t, err error) {
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &st)
	return st, err
}

// mounted reports whether it is the root of a mount, or might be: kernels before 5.8 do not say.
func mounted(st unix.Statx_t) bool {
	return st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
