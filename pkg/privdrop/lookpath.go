package privdrop

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// defaultPath is searched if the environment has no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// lookPath finds the file that a shell in dir would execute for name, with
// pathEnv as its PATH, by the access rights of the calling process. It searches
// as execvp(3) does: what may not be executed is passed over, but remembered
// for the error, which is an *ExecError.
func lookPath(name, pathEnv, dir string) (string, error) {
	if name == "" {
		return "", &ExecError{name, syscall.ENOENT}
	}
	if strings.Contains(name, "/") {
		file := in(dir, name)
		if _, errno := executable(file); errno != 0 {
			return "", &ExecError{name, errno}
		}
		return file, nil
	}
	if pathEnv == "" {
		pathEnv = defaultPath
	}
	failure := syscall.ENOENT
	for element := range strings.SplitSeq(pathEnv, ":") {
		file := in(dir, element+"/"+name)
		if element == "" { // the working directory
			file = in(dir, "./"+name)
		}
		switch there, errno := executable(file); {
		case errno == 0:
			return file, nil
		case !there && errno == syscall.EACCES: // a directory that the caller may not enter has nothing for it
		case errno == syscall.ENOENT || errno == syscall.ENOTDIR:
		default:
			failure = errno
		}
	}
	return "", &ExecError{name, failure}
}

// in makes file absolute within dir. It does not clean the path, since that
// would change what ".." after a link means.
func in(dir, file string) string {
	if dir == "" || filepath.IsAbs(file) {
		return file
	}
	return dir + "/" + file
}

// executable says why a file can't be executed, and whether it was seen at all.
func executable(file string) (there bool, why syscall.Errno) {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return false, errnoOf(err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return true, errnoOf(unix.Access(file, unix.X_OK))
	case unix.S_IFDIR:
		return true, syscall.EISDIR
	}
	return true, syscall.EACCES
}

func errnoOf(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return errno
	}
	return syscall.EIO
}
