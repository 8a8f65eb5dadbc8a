package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

const (
	maxFile  = 64 << 20  // bytes of one file
	maxTotal = 128 << 20 // bytes of all files
	maxFiles = 1000
)

// ReadOptions says where a policy is, and who must not be able to write it.
type ReadOptions struct {
	Dir       string // absolute, for example /etc/agent-init
	HostsFile string // absolute, for example /etc/hosts; "" for none
	SavedFile string // absolute, read behind the files of Dir: what people have allowed and denied for good; "" for none
	Ceiling   string // absolute, the directory that ceiling.d is in, wherever Dir is: no flag leads past it; "" for none
	SeenFile  string // absolute, has the number of the newest signed ceiling that was in force; "" for none
	AgentUID  uint32 // the agent's uid, for messages only; 0 if it is not known
}

// FileError is a policy file that can't be used.
type FileError struct {
	Path   string
	Cause  string
	Remedy string
}

// Error returns "path: cause; remedy".
func (e *FileError) Error() string { return e.What() + "; " + e.Remedy }

// What is "path: cause", with the path once where the cause begins with it.
func (e *FileError) What() string {
	if strings.HasPrefix(e.Cause, e.Path+" ") || strings.HasPrefix(e.Cause, e.Path+": ") {
		return e.Cause
	}
	return e.Path + ": " + e.Cause
}

// Read reads the ceiling, then policy.yaml, allowlist.txt and allowlist.d/*.{txt,yaml} of a directory, those of its phases,
// and what was saved; what is missing is empty. Every file, and every directory and link on the way to it, must belong to root and be writable
// by nobody else, whoever the agent is, else the error is a *FileError. A hosts file that does not hold to that is left
// out, with a warning. An error of the ceiling is a *CeilingError; with any other, the bundle has the ceiling alone.
func Read(o ReadOptions) (*Bundle, error) {
	if !filepath.IsAbs(o.Dir) {
		return nil, &FileError{o.Dir, "not an absolute path", "give the directory of the policy from / on"}
	}
	w := walker{agentUID: o.AgentUID}
	if _, err := w.names(o.Dir); err != nil { // judged also where no file is
		return nil, err
	}
	b, err := ReadCeiling(o)
	if err != nil {
		return nil, err
	}
	alone := *b
	if err := w.files(o, b); err != nil {
		return &alone, err
	}
	return b, nil
}

// ReadCeiling is Read of a ceiling alone.
func ReadCeiling(o ReadOptions) (*Bundle, error) {
	b := &Bundle{}
	if o.Ceiling == "" {
		return b, nil
	}
	var err error
	if b.Ceiling, b.Signed, err = (walker{agentUID: o.AgentUID}).ceiling(o); err != nil {
		return nil, &CeilingError{err}
	}
	return b, nil
}

// files reads into b what is below the ceiling.
func (w walker) files(o ReadOptions, b *Bundle) error {
	names := []string{"policy.yaml", "allowlist.txt"}
	more, err := w.listed(o.Dir, "allowlist.d", b)
	if err != nil {
		return err
	}
	if names = append(names, more...); len(names) > maxFiles {
		return &FileError{filepath.Join(o.Dir, "allowlist.d"), fmt.Sprintf("more than %d files", maxFiles), "join some of them"}
	}
	total := 0
	for i, name := range names {
		f, err := w.file(o.Dir, name, &total)
		if errors.Is(err, fs.ErrNotExist) && i < 2 {
			continue
		}
		if err != nil {
			return gone(err, filepath.Join(o.Dir, name))
		}
		b.Files = append(b.Files, f)
	}
	if err := w.phases(o.Dir, b, &total); err != nil {
		return err
	}
	if o.SavedFile != "" {
		saved, err := w.saved(o.SavedFile)
		if err != nil {
			return err
		}
		if saved != nil {
			b.Files = append(b.Files, File{Name: o.SavedFile, Data: saved})
		}
	}
	if o.HostsFile != "" {
		b.Hosts, err = w.read(o.HostsFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.Warnings = append(b.Warnings, Error{Source: Source{File: o.HostsFile}, Message: "not used: " + err.Error()})
		}
	}
	return nil
}

// file reads one of the files of dir, and counts it among all.
func (w walker) file(dir, name string, total *int) (File, error) {
	data, err := w.read(filepath.Join(dir, name))
	if *total += len(data); err == nil && *total > maxTotal {
		err = &FileError{dir, fmt.Sprintf("the files have more than %d MiB together", maxTotal>>20), "shorten the lists"}
	}
	return File{Name: name, Data: data}, err
}

// names returns what is in a directory, in order; nil if there is none, and only then.
func (w walker) names(dir string) ([]string, error) {
	d, err := w.open(dir, true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, &FileError{dir, err.Error(), "make the directory readable by root"}
	}
	slices.Sort(names)
	return names, nil
}

// listed returns the files of a directory in dir, such as allowlist.d, that are read, relative to dir.
func (w walker) listed(dir, in string, b *Bundle) ([]string, error) {
	entries, err := w.names(filepath.Join(dir, in))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		name := in + "/" + e
		switch {
		case strings.HasPrefix(e, "."): // a volume's own links, an editor's files
		case strings.HasSuffix(e, ".txt") || strings.HasSuffix(e, ".yaml"):
			names = append(names, name)
		case strings.HasSuffix(e, ".yml"):
			return nil, &FileError{filepath.Join(dir, name), "files in YAML end in .yaml here", "rename it"}
		default:
			b.Warnings = append(b.Warnings, Error{Source: Source{File: name}, Message: "not read: its name ends neither in .txt nor in .yaml"})
		}
	}
	return names, nil
}

// read returns the content of a regular file.
func (w walker) read(path string) ([]byte, error) {
	f, err := w.open(path, false)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, path, maxFile, "64 MiB", "split or shorten the list")
}

// readAll returns all of what is not larger than most, which in words is size.
func readAll(r io.Reader, path string, most int64, size, remedy string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err
	}
	if err != nil {
		return nil, &FileError{path, "reading it failed: " + err.Error(), "check the file system that it is on"}
	}
	if int64(len(data)) > most {
		return nil, &FileError{path, "larger than " + size, remedy}
	}
	return data, nil
}

// Differs names the files that are others in b than in old: changed, new, or gone. The hosts file is "hosts", and so on.
func (b *Bundle) Differs(old *Bundle) []string {
	var names []string
	now, was := b.files(), old.files()
	for _, f := range slices.Concat(now, was) {
		same := f.Equal
		if !(slices.ContainsFunc(now, same) && slices.ContainsFunc(was, same)) && !slices.Contains(names, f.Name) {
			names = append(names, f.Name)
		}
	}
	if len(names) == 0 && b.Signed != old.Signed {
		names = append(names, "the signature of the ceiling")
	}
	if !bytes.Equal(b.Hosts, old.Hosts) || (b.Hosts == nil) != (old.Hosts == nil) {
		names = append(names, "hosts")
	}
	if !b.Resolv.Equal(old.Resolv) {
		names = append(names, "resolv.conf")
	}
	if !slices.Equal(b.Absent, old.Absent) {
		names = append(names, "which credentials are there")
	}
	if len(names) == 0 && !slices.Equal(b.Warnings, old.Warnings) {
		names = append(names, "what is not read")
	}
	return names
}
