package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// walker opens files from / on, one name at a time, and checks everything on the way: directories, symbolic links, and
// the directories those lead through. So nobody but root could have put another file in the place, or can while it is
// being opened. Links as such are fine: volumes of Kubernetes are made of them.
type walker struct {
	agentUID  uint32 // only to say who it is
	vacancies bool   // judge a place that is empty as well: nobody but root may fill it
}

// maxLinks is how many links the kernel follows as well, path_resolution(7).
const maxLinks = 40

// walk is one way from / to a file.
type walk struct {
	walker
	path  string   // as asked for
	dir   int      // where the walk is, open
	at    string   // its path, with / at the end
	todo  []string // the names that are left
	links int      // followed so far
}

// maxReplaced is how often a file may be replaced just as it is opened: each time, the whole way is gone and checked anew.
const maxReplaced = 100

var errReplaced = errors.New("replaced while it was being opened")

// open opens a regular file, or a directory. A missing one is fs.ErrNotExist, any other error a *FileError.
func (w walker) open(path string, wantDir bool) (*os.File, error) {
	for range maxReplaced {
		if f, err := w.openOnce(path, wantDir); !errors.Is(err, errReplaced) {
			return f, err
		}
	}
	return nil, &FileError{path, errReplaced.Error(), "try again"}
}

func (w walker) openOnce(path string, wantDir bool) (*os.File, error) {
	k := &walk{walker: w, path: path, dir: -1, todo: split(path)}
	defer func() { unix.Close(k.dir) }()
	if err := k.begin(); err != nil {
		return nil, err
	}
	for len(k.todo) > 0 {
		name := k.todo[0]
		k.todo = k.todo[1:]
		fd, st, err := k.enter(name)
		if err != nil {
			return nil, err
		}
		kind := st.Mode & unix.S_IFMT
		if kind == unix.S_IFDIR {
			k.move(fd, name)
			continue
		}
		switch {
		case kind == unix.S_IFLNK:
			err = k.follow(fd, name)
		case len(k.todo) > 0:
			err = k.refuse(k.at+name+": not a directory", "remove it")
		case kind != unix.S_IFREG:
			err = k.refuse("not a regular file", "remove it")
		case wantDir:
			err = k.refuse("not a directory", "remove it")
		default:
			f, err := k.reopen(name, unix.O_NONBLOCK, st)
			unix.Close(fd)
			return f, err
		}
		unix.Close(fd)
		if err != nil {
			return nil, err
		}
	}
	if !wantDir { // engines make one in the place of what is mounted there and does not exist
		return nil, k.refuse("a directory, where a file should be", "check the path on the host, if this is a mount: -v PATH:"+path+"; else remove it")
	}
	if err := k.home(path); err != nil {
		return nil, err
	}
	return k.reopen(".", unix.O_DIRECTORY, nil)
}

func (k *walk) refuse(cause, remedy string) error {
	return &FileError{k.path, cause, remedy}
}

func (k *walk) begin() error {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return k.refuse("opening / failed: "+err.Error(), "run as root")
	}
	k.at = ""
	k.move(fd, "")
	if _, bad := k.check(fd, "/", false); bad != "" {
		return k.refuse(bad, "make / belong to root, with mode 755")
	}
	return nil
}

// move goes on to a directory that is open.
func (k *walk) move(fd int, name string) {
	unix.Close(k.dir)
	k.dir, k.at = fd, strings.TrimSuffix(filepath.Join("/", k.at, name), "/")+"/"
}

// enter opens name without following or reading it, and checks it.
func (k *walk) enter(name string) (fd int, st *unix.Stat_t, err error) {
	here := k.at + name
	fd, err = unix.Openat(k.dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case err == unix.ENOENT && k.links > 0 && !k.vacancies:
		return -1, nil, k.refuse("the symbolic link leads to "+here+", which is missing", "remove the link, or put the file there")
	case err == unix.ENOENT:
		if k.vacancies {
			if err := k.home(k.at); err != nil {
				return -1, nil, err
			}
		}
		return -1, nil, &os.PathError{Op: "open", Path: here, Err: fs.ErrNotExist}
	case err != nil:
		return -1, nil, k.refuse(here+": "+err.Error(), "make it readable by root")
	}
	st, bad := k.check(fd, here, false)
	if bad != "" {
		unix.Close(fd)
		return -1, nil, k.refuse(bad, mend(st, here, filepath.Dir(k.path)))
	}
	return fd, st, nil
}

// mend says how path is made root's alone. Under umask 002 a checkout has many such files, and COPY keeps their mode.
func mend(st *unix.Stat_t, path, dir string) string {
	if st.Uid == 0 {
		return fmt.Sprintf("chmod go-w %s (in a Dockerfile, for all of them: RUN chmod -R go-w %s)", path, dir)
	}
	if host := HostRoot(); st.Uid == OverflowUID && host != "" {
		return fmt.Sprintf("chown it on the host to %s:%s, which is root in this container (user namespace), or copy it into the image", host, host)
	}
	return fmt.Sprintf("chown root:root %s && chmod go-w %s, or mount the policy read-only from a place that is root's", path, path)
}

// CheckProgram judges the program at path, from / on, by the rule that the files of a policy have to hold to: a
// *FileError says that somebody else than root could change it, or put another one in its place. Where nothing is at
// path, the error is fs.ErrNotExist if nobody but root could put something there.
func CheckProgram(path string) error {
	f, err := walker{vacancies: true}.open(path, false)
	if err != nil {
		return err
	}
	return f.Close()
}

// OverflowUID stands for every user that has no number in a user namespace (user_namespaces(7)).
const OverflowUID = 65534

// HostRoot is what root of this user namespace is on the host, as --userns-remap makes it; "" if that is root too.
func HostRoot() string {
	data, _ := os.ReadFile("/proc/self/uid_map")
	return rootIn(string(data))
}

// rootIn looks for uid 0 in a uid_map.
func rootIn(uidMap string) string {
	for line := range strings.Lines(uidMap) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "0" && f[1] != "0" {
			return f[1]
		}
	}
	return ""
}

// follow puts what the link that fd is open on says in the place of its name.
func (k *walk) follow(fd int, name string) error {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if k.links++; err != nil || n <= 0 || n == len(buf) || k.links > maxLinks {
		return k.refuse(k.at+name+": the symbolic link leads nowhere", "remove it")
	}
	k.todo = append(split(string(buf[:n])), k.todo...)
	if buf[0] == '/' {
		return k.begin()
	}
	return nil
}

// reopen opens for reading what was checked: name in the last directory, found as st, or that directory itself.
func (k *walk) reopen(name string, flags int, st *unix.Stat_t) (*os.File, error) {
	fd, err := unix.Openat(k.dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, k.refuse(err.Error(), "make it readable by root")
	}
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil || st != nil && (now.Dev != st.Dev || now.Ino != st.Ino) {
		unix.Close(fd)
		return nil, errReplaced
	}
	return os.NewFile(uintptr(fd), k.path), nil
}

// check says why what fd is open on, at path, could be changed by somebody else than root, or "". As a home, it is a
// directory into which nobody else may put a file. Root's own group is no exception, in no mode: images give it to
// users that are to have no fixed uid, and an engine gives it to every uid that it is told and that has no account.
func (w walker) check(fd int, path string, home bool) (st *unix.Stat_t, bad string) {
	st = new(unix.Stat_t)
	if err := unix.Fstat(fd, st); err != nil {
		return st, path + ": " + err.Error()
	}
	kind := st.Mode & unix.S_IFMT
	switch {
	case st.Uid != 0 && st.Uid == w.agentUID:
		bad = fmt.Sprintf("%s belongs to the agent (uid %d)", path, st.Uid)
	case st.Uid != 0:
		bad = fmt.Sprintf("%s belongs to uid %d, not to root", path, st.Uid)
	case kind == unix.S_IFLNK: // its mode means nothing
	case kind == unix.S_IFDIR && (st.Mode&unix.S_ISVTX != 0 && !home || readOnly(fd)):
		// In a sticky directory others can't replace what is root's, but move into it, and link, what is root's
		// elsewhere. On a read-only mount nobody can: volumes of Kubernetes have mode 777.
	case st.Mode&0o020 != 0 && hasACL(fd):
		// With an access control list, the group's bits are the list's mask.
		bad = path + " is writable by way of an access control list"
	case st.Mode&0o002 != 0:
		bad = fmt.Sprintf("%s is writable by everyone (mode %04o)", path, st.Mode&0o7777)
	case st.Mode&0o020 != 0:
		bad = fmt.Sprintf("%s is writable by group %d (mode %04o)", path, st.Gid, st.Mode&0o7777)
	}
	return st, bad
}

// home refuses the directory that the walk has come to, at path, if somebody else than root could put a file into it.
func (k *walk) home(path string) error {
	if _, bad := k.check(k.dir, path, true); bad != "" {
		return k.refuse(bad, "chmod go-w "+path)
	}
	return nil
}

func readOnly(fd int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}

// hasACL says whether fd, which may be open with O_PATH, has a list. Where that can't be told, it has.
func hasACL(fd int) bool {
	_, err := unix.Getxattr(fmt.Sprintf("/proc/self/fd/%d", fd), "system.posix_acl_access", nil)
	return err != unix.ENODATA && err != unix.EOPNOTSUPP
}

// split returns the names in a path.
func split(path string) []string {
	names := strings.Split(path, "/")
	return slices.DeleteFunc(names, func(s string) bool { return s == "" || s == "." })
}
