package policy

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
)

// ReadDrop reads the files of a directory into which only root can put any, most of them, and most bytes of each: small
// messages, which come as a volume of Kubernetes does. What has vanished meanwhile is there at the next look. The files
// that can be read are returned also with an error.
func ReadDrop(dir string, files, bytes int) (out []File, err error) {
	var w walker
	names, err := w.names(dir)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range names {
		if strings.HasPrefix(name, ".") { // the volume's own links
			continue
		}
		if len(out) == files {
			errs = append(errs, &FileError{dir, "more files than are read", "remove those that are not needed any more"})
			break
		}
		f, err := w.open(filepath.Join(dir, name), false)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		data, err := io.ReadAll(io.LimitReader(f, int64(bytes)))
		f.Close()
		if err != nil {
			errs = append(errs, &FileError{filepath.Join(dir, name), "reading it failed", "check the file system that it is on"})
			continue
		}
		out = append(out, File{Name: name, Data: data})
	}
	return out, errors.Join(errs...)
}
