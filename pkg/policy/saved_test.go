package policy

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
)

func savedPath(t *testing.T) string {
	t.Helper()
	mustrun.Root(t)
	return filepath.Join(t.TempDir(), "lib/allowlist.d/granted.txt")
}

func openSaved(t *testing.T, path string) *Saved {
	t.Helper()
	s, err := OpenSaved(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// readSaved reads what was saved as a start does: nil if there is no file.
func readSaved(path string) ([]byte, error) {
	b, err := Read(ReadOptions{Dir: filepath.Join(filepath.Dir(path), "missing"), SavedFile: path})
	if err != nil || len(b.Files) == 0 {
		return nil, err
	}
	return b.Files[0].Data, nil
}

func TestSaved(t *testing.T) {
	path := savedPath(t)
	if data, err := readSaved(path); data != nil || err != nil {
		t.Fatalf("without a directory: %q, %v", data, err)
	}
	s := openSaved(t, path)
	if s.Data != nil {
		t.Errorf("a new file has %q", s.Data)
	}
	if err := s.Replace([]byte("a.example\n")); err != nil {
		t.Fatal(err)
	}
	if data, err := readSaved(path); string(data) != "a.example\n" || err != nil {
		t.Errorf("read back: %q, %v", data, err)
	}
	if _, err := OpenSaved(path); err == nil || !strings.Contains(err.Error(), "another agent-init is changing it") {
		t.Errorf("two at once: %v", err)
	}
	if err := s.Undo(); err != nil {
		t.Fatal(err)
	}
	if data, err := readSaved(path); data != nil || err != nil {
		t.Errorf("after what was undone: %q, %v", data, err)
	}
	s.Close()

	again := openSaved(t, path)
	for _, err := range []error{again.Replace([]byte("b.example\n")), again.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	last := openSaved(t, path)
	for _, err := range []error{last.Replace(nil), last.Undo()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if data, err := readSaved(path); string(data) != "b.example\n" || err != nil {
		t.Errorf("after what was undone: %q, %v", data, err)
	}
	last.Close()
	var all sync.WaitGroup
	for i := range 8 { // nobody's line is lost
		all.Go(func() {
			s, err := OpenSaved(path)
			if err == nil {
				err = errors.Join(s.Replace(append(s.Data, fmt.Sprintf("n%d.example\n", i)...)), s.Close())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if data, err := readSaved(path); bytes.Count(data, []byte("\n")) != 9 || err != nil {
		t.Errorf("after eight at once: %q, %v", data, err)
	}
	last = openSaved(t, path)
	st, err := os.Stat(path)
	if err != nil || st.Mode() != 0o644 {
		t.Errorf("its mode is %v, %v", st.Mode(), err)
	}
	if err := last.Replace(bytes.Repeat([]byte("#"), maxSaved+1)); err == nil || !strings.Contains(err.Error(), "larger than 64 KiB") {
		t.Errorf("a file without a bound: %v", err)
	}
}

// TestKernelSavedRefuses: like any file of the policy, what was saved is nobody's but root's; so is the place where it
// is to be, and no link of anybody's is followed in writing.
func TestKernelSavedRefuses(t *testing.T) {
	must := func(t *testing.T, errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		spoil       func(t *testing.T, path, dir, lib string)
		reads       bool   // all the same
		read, write string // in the errors
	}{
		"the agent's file":      {func(t *testing.T, path, _, _ string) { must(t, os.Chown(path, agent, 0)) }, false, "belongs to uid 1000", "belongs to uid 1000"},
		"everybody's file":      {func(t *testing.T, path, _, _ string) { must(t, os.Chmod(path, 0o666)) }, false, "writable by everyone", "writable by everyone"},
		"the agent's directory": {func(t *testing.T, _, dir, _ string) { must(t, os.Chown(dir, agent, 0)) }, false, "belongs to uid 1000", "belongs to uid 1000"},
		"everybody's directory": {func(t *testing.T, _, dir, _ string) { must(t, os.Chmod(dir, 0o777|os.ModeSticky)) }, false, "writable by everyone", "writable by everyone"},
		"the agent's volume":    {func(t *testing.T, _, _, lib string) { must(t, os.Chown(lib, agent, 0)) }, false, "belongs to uid 1000", "belongs to uid 1000"},
		"a link to another file": {func(t *testing.T, path, _, lib string) {
			must(t, os.Rename(path, lib+"/real.txt"), os.Symlink("../real.txt", path))
		}, true, "", "a symbolic link"},
		"a link to nowhere":               {func(t *testing.T, path, _, _ string) { must(t, os.Remove(path), os.Symlink("nowhere", path)) }, false, "is missing", "a symbolic link"},
		"a FIFO":                          {func(t *testing.T, path, _, _ string) { must(t, os.Remove(path), unix.Mkfifo(path, 0o644)) }, false, "not a regular file", "not a regular file"},
		"too large":                       {func(t *testing.T, path, _, _ string) { must(t, os.Truncate(path, maxSaved+1)) }, false, "larger than 64 KiB", "larger than 64 KiB"},
		"a directory instead of the lock": {func(t *testing.T, _, dir, _ string) { must(t, os.Mkdir(dir+"/.lock", 0o755)) }, true, "", "writing it failed"},
	} {
		t.Run(name, func(t *testing.T) {
			path := savedPath(t)
			dir := filepath.Dir(path)
			must(t, os.MkdirAll(dir, 0o755), os.WriteFile(path, []byte("a.example\n"), 0o644))
			c.spoil(t, path, dir, filepath.Dir(dir))
			if _, err := readSaved(path); (err == nil) != c.reads || err != nil && !strings.Contains(err.Error(), c.read) {
				t.Errorf("read: %v, want %q", err, c.read)
			}
			s, err := OpenSaved(path)
			if err == nil || !strings.Contains(err.Error(), c.write) {
				t.Errorf("opened: %+v, %v, want %q", s, err, c.write)
			}
		})
	}
}

// TestKernelSavedUnwritable: who can't save is told what stands in the way, and nothing is left behind.
func TestKernelSavedUnwritable(t *testing.T) {
	path := savedPath(t)
	lib := filepath.Dir(filepath.Dir(path))
	if err := os.Mkdir(lib, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", lib, "tmpfs", 0, "size=8k,mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(lib, unix.MNT_DETACH) })
	s := openSaved(t, path)
	if err := s.Replace([]byte("a.example\n")); err != nil {
		t.Fatal(err)
	}
	err := s.Replace(bytes.Repeat([]byte("# a line\n"), 2000))
	if f, ok := errors.AsType[*FileError](err); !ok || !strings.Contains(f.Remedy, "make room") {
		t.Errorf("on a full disk: %v", err)
	}
	if data, err := readSaved(path); string(data) != "a.example\n" || err != nil {
		t.Errorf("the file has %q then, %v", data, err)
	}
	if _, err := os.Stat(path + ".new"); err == nil {
		t.Error("a part of a file is left behind")
	}
	s.Close()
	if err := unix.Mount("", lib, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, err = OpenSaved(path)
	if f, ok := errors.AsType[*FileError](err); !ok || !strings.Contains(f.Remedy, "mount a volume that can be written at "+lib) {
		t.Errorf("on a disk that is only read: %v", err)
	}
}

// TestReplacedWhileOpened holds that a file that keepers replace all the time can be opened all the same.
func TestReplacedWhileOpened(t *testing.T) {
	path := savedPath(t)
	openSaved(t, path).Close()
	dir := filepath.Dir(path)
	stop := make(chan struct{})
	var all sync.WaitGroup
	replace := func() error {
		next := filepath.Join(dir, "next")
		return errors.Join(os.WriteFile(next, []byte("a.example\n"), 0o600), os.Rename(next, path))
	}
	if err := replace(); err != nil {
		t.Fatal(err)
	}
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := replace(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 1000 {
		f, err := walker{}.open(path, false)
		if err != nil {
			t.Error(err)
			break
		}
		f.Close()
	}
	close(stop)
	all.Wait()
}
