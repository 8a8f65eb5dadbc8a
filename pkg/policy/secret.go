package policy

import (
	"bytes"
	"fmt"

	"golang.org/x/sys/unix"
)

// maxSecret bounds a credential. The longest that are known are tokens of some KiB.
const maxSecret = 64 << 10

// ReadSecret reads the credential at path, which must be root's on all the way as the files of a policy are. As a
// hidden one, nobody but root may read it, either. A missing one is fs.ErrNotExist, any other error a *FileError, which
// has nothing of the content. One newline at the end is no part of it.
func ReadSecret(path string, hidden bool) ([]byte, error) {
	data, err := readHidden(path, hidden)
	if err != nil {
		return nil, err
	}
	data = bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))
	if bad := CheckSecret(data); bad != "" {
		return nil, &FileError{path, bad, "put the credential into it, in one line, and nothing else"}
	}
	return data, nil
}

// ReadLogin is ReadSecret of a file with a login, which is an object of JSON. What is in it, another says.
func ReadLogin(path string, hidden bool) ([]byte, error) {
	data, err := readHidden(path, hidden)
	if err == nil && (len(data) == 0 || data[0] != '{') {
		err = &FileError{path, "it is no login", "put the file there in which the agent's program keeps its login: .credentials.json of Claude Code, auth.json of Codex"}
	}
	return data, err
}

func readHidden(path string, hidden bool) ([]byte, error) {
	f, err := walker{}.open(path, false)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, &FileError{path, err.Error(), "check the file system that it is on"}
	}
	if hidden && st.Mode&0o044 != 0 {
		return nil, &FileError{path, fmt.Sprintf("others than root can read it (mode %04o), and the agent among them", st.Mode&0o7777),
			"chmod 400 " + path + " (kubernetes: defaultMode: 0400; docker swarm: mode: 0400)"}
	}
	return readAll(f, path, maxSecret, "64 KiB", "put the credential into it, and nothing else")
}

// CheckSecret says why a credential can't be put into the head of a request (RFC 9110, 5.5), or "". It quotes nothing.
func CheckSecret(data []byte) string {
	switch {
	case len(data) == 0:
		return "it is empty"
	case len(data) > maxSecret:
		return fmt.Sprintf("it is longer than %d KiB", maxSecret>>10)
	case data[0] == ' ' || data[len(data)-1] == ' ':
		return "it begins or ends with a blank"
	case bytes.ContainsFunc(data, func(r rune) bool { return r < ' ' || r > '~' }):
		return "it has characters other than printable ASCII: several lines, or another encoding"
	}
	return ""
}

// ReadTrusted reads a file that must be root's as those of a policy are. A missing one is fs.ErrNotExist, any other
// error a *FileError.
func ReadTrusted(path string) ([]byte, error) { return walker{}.read(path) }
