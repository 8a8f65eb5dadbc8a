package policy

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// walker opens files from / on, one name at a time, and checks everything on
// the way: directories, symbolic links, and the directories those lead through.
// So nobody but root could have put another file in the place, or can while it
// is being opened. Links as such are fine: volumes of Kubernetes are made of them.
type walker struct {
	agentUID  uint32
	agentGIDs []uint32
}

// maxLinks is how many links the kernel follows as well, path_resolution(7).
const maxLinks = 40

// open opens a regular file, or a directory. A missing file is fs.ErrNotExist,
// anything else that is wrong a *FileError.
func (w walker) open(path string, wantDir bool) (*os.File, error) {
	refuse := func(cause, remedy string) (*os.File, error) {
		return nil, &FileError{path, cause, remedy}
	}
	dir, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return refuse("opening / failed: "+err.Error(), "run as root")
	}
	dirs := []int{dir} // from / to where the walk is, for the sake of ".."
	defer func() {
		for _, fd := range dirs {
			unix.Close(fd)
		}
	}()
	if bad := w.check(dir, "/"); bad != "" {
		return refuse(bad, "make / belong to root, mode 755")
	}
	at := "/"
	todo := split(path)
	for links := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		if name == ".." {
			if len(dirs) > 1 {
				unix.Close(dirs[len(dirs)-1])
				dirs = dirs[:len(dirs)-1]
				at = at[:strings.LastIndexByte(strings.TrimSuffix(at, "/"), '/')+1]
			}
			continue
		}
		here := at + name
		fd, err := unix.Openat(dirs[len(dirs)-1], name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		switch {
		case err == unix.ENOENT && links > 0:
			return refuse("the symbolic link leads to "+here+", which is missing", "remove the link, or put the file there")
		case err == unix.ENOENT:
			return nil, &os.PathError{Op: "open", Path: here, Err: fs.ErrNotExist}
		case err != nil:
			return refuse(here+": "+err.Error(), "make it readable by root")
		}
		dirs = append(dirs, fd) // to be closed; what is no directory leaves the list again
		if bad := w.check(fd, here); bad != "" {
			return refuse(bad, fmt.Sprintf("chown root:root %s && chmod go-w %s, or mount the policy read-only from a place that is root's", here, here))
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return refuse(here+": "+err.Error(), "check the file system that it is on")
		}
		kind := st.Mode & unix.S_IFMT
		switch {
		case kind == unix.S_IFDIR:
			at = here + "/"
			continue
		case kind == unix.S_IFLNK:
			buf := make([]byte, unix.PathMax)
			n, err := unix.Readlinkat(fd, "", buf)
			if links++; err != nil || n == 0 || n == len(buf) || links > maxLinks {
				return refuse(here+": the symbolic link leads nowhere", "remove it")
			}
			unix.Close(fd)
			dirs = dirs[:len(dirs)-1]
			target := string(buf[:n])
			if target[0] == '/' {
				for _, fd := range dirs[1:] {
					unix.Close(fd)
				}
				dirs, at = dirs[:1], "/"
			}
			todo = append(split(target), todo...)
			continue
		case len(todo) > 0:
			return refuse(here+": not a directory", "remove it")
		case kind != unix.S_IFREG || wantDir:
			return refuse("not a "+map[bool]string{false: "regular file", true: "directory"}[wantDir], "remove it")
		}
		return reopen(dirs[len(dirs)-2], name, path, unix.O_NONBLOCK, &st)
	}
	if !wantDir {
		return refuse("not a regular file", "remove it")
	}
	var st unix.Stat_t
	if err := unix.Fstat(dirs[len(dirs)-1], &st); err != nil {
		return refuse(err.Error(), "check the file system that it is on")
	}
	return reopen(dirs[len(dirs)-1], ".", path, unix.O_DIRECTORY, &st)
}

// reopen opens for reading what was checked; st is how it was found.
func reopen(dir int, name, path string, flags int, st *unix.Stat_t) (*os.File, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, &FileError{path, err.Error(), "make it readable by root"}
	}
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil || now.Dev != st.Dev || now.Ino != st.Ino {
		unix.Close(fd)
		return nil, &FileError{path, "replaced while it was being opened", "try again"}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// check says why what fd is open on could be changed by somebody else than
// root, or "".
func (w walker) check(fd int, path string) string {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return path + ": " + err.Error()
	}
	kind := st.Mode & unix.S_IFMT
	switch {
	case st.Uid != 0 && st.Uid == w.agentUID:
		return fmt.Sprintf("%s belongs to the agent (uid %d)", path, st.Uid)
	case st.Uid != 0:
		return fmt.Sprintf("%s belongs to uid %d, not to root", path, st.Uid)
	case kind == unix.S_IFLNK: // its mode means nothing
		return ""
	case kind == unix.S_IFDIR && (st.Mode&unix.S_ISVTX != 0 || readOnly(fd)):
		// In a sticky directory others can't replace what is root's. On a
		// read-only mount nobody can: volumes of Kubernetes have mode 777.
		return ""
	case st.Mode&0o002 != 0:
		return fmt.Sprintf("%s is writable by everyone (mode %04o)", path, st.Mode&0o7777)
	case st.Mode&0o020 != 0 && (st.Gid != 0 || slices.Contains(w.agentGIDs, 0)):
		return fmt.Sprintf("%s is writable by group %d (mode %04o)", path, st.Gid, st.Mode&0o7777)
	case st.Mode&0o020 != 0 && hasACL(fd):
		// With an access control list, the group's bits are the list's mask.
		return path + " is writable by way of an access control list"
	}
	return ""
}

func readOnly(fd int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}

// hasACL says whether fd, which may be open with O_PATH, has a list. Where that
// can't be told, it has.
func hasACL(fd int) bool {
	_, err := unix.Getxattr(fmt.Sprintf("/proc/self/fd/%d", fd), "system.posix_acl_access", nil)
	return err != unix.ENODATA && err != unix.EOPNOTSUPP
}

// split returns the names in a path.
func split(path string) []string {
	names := strings.Split(path, "/")
	return slices.DeleteFunc(names, func(s string) bool { return s == "" || s == "." })
}
