// Package state is what the keeper publishes in /run/agent-init, and who may read it.
package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/text"
)

// runtimeDirs are where the keeper publishes its state, the first that can be written: /run, or the tmpfs that every
// engine mounts at /dev/shm when the root file system is read-only.
var runtimeDirs = [...]string{"/run/agent-init", "/dev/shm/agent-init"}

// The published files. All are written by root alone; agent.json holds the
// agent's environment and can be read by root alone too.
const (
	StatusFile = "status.json"
	ProbesFile = "selftest.json"
	AgentFile  = "agent.json"
	GrantsFile = "grants.json"
	LeasesFile = "leases.json"  // which addresses are open for which names
	PolicyFile = "policy.jsonl" // the policy in force, without the settings
	MetricFile = "metrics.prom" // counters and states, in the text format of Prometheus
	ReadmeFile = "README.md"    // what an agent is told about where it is
	BrokerFile = "broker.env"   // what points an agent that others start to the broker, for a shell to read
	lockFile   = "keeper.lock"
)

// Dir is the keeper's published state.
type Dir string

// Make makes the directory, or takes one that is already root's. Anybody else's, or a link, is refused: what is in
// there is trusted. The containers of a pod share /dev/shm, and the agent may be root in one of them.
func Make(mode string) (Dir, error) {
	var errs []error
	dirs := runtimeDirs[:]
	if mode == "sidecar" {
		dirs = dirs[:1]
	}
	for _, d := range dirs {
		err := os.Mkdir(d, 0o755)
		if errors.Is(err, os.ErrExist) {
			err = Take(d)
		}
		if err == nil {
			err = checkDir(d)
		}
		if err == nil && mode != "sidecar" { // the agent's container has another /run
			err = checkAbove(d)
		}
		if err == nil {
			if err = unix.Access(d, unix.W_OK); err == nil {
				return Dir(d), nil
			}
		}
		errs = append(errs, fmt.Errorf("%s: %w", d, text.CauseOf(err)))
	}
	return "", errors.Join(errs...)
}

// Take takes write permission from all but root, if the directory is root's: volumes of Kubernetes are mounted
// with mode 777. Nobody can have put anything into one that is empty after that.
func Take(d string) error {
	fd, err := unix.Open(d, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), d)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Uid != 0 || st.Mode&0o022 == 0 {
		return err // whose it is, is looked at by checkRuntimeDir
	}
	if err := unix.Fchmod(fd, 0o755); err != nil {
		return fmt.Errorf("can be written by others than root: %w", err)
	}
	if names, err := f.Readdirnames(1); err != io.EOF {
		_ = unix.Fchmod(fd, st.Mode&0o7777) // the next start must not take it either
		return fmt.Errorf("could be written by others than root, and holds %q already (%v)", names, err)
	}
	return nil
}

// Find finds the directory of the running keeper.
func Find() (Dir, error) {
	var errs []error
	for _, d := range runtimeDirs {
		err := checkDir(d)
		if err == nil {
			if _, err = os.Stat(filepath.Join(d, StatusFile)); err == nil {
				return Dir(d), nil
			}
		}
		if !errors.Is(err, fs.ErrNotExist) { // of those that are there, what is wrong
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return "", fs.ErrNotExist
	}
	return "", errors.Join(errs...)
}

// checkAbove says whether somebody else than root could move d away, and the sockets in it with which root decides:
// an agent may be in root's group, which may write /run in images that are made for users without a fixed uid.
func checkAbove(d string) error {
	above := filepath.Dir(d)
	var st unix.Stat_t
	if err := unix.Stat(above, &st); err != nil {
		return err
	}
	if st.Uid != 0 || st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
		return fmt.Errorf("%s can be written by others than root (uid %d, mode %04o)", above, st.Uid, st.Mode&0o7777)
	}
	return nil
}

func checkDir(d string) error {
	var st unix.Stat_t
	if err := unix.Lstat(d, &st); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return errors.New("not a directory")
	case st.Uid != 0:
		return fmt.Errorf("belongs to uid %d, not to root", st.Uid)
	case st.Mode&0o022 != 0:
		return errors.New("can be written by others than root")
	}
	return nil
}

// Write replaces one file as a whole, so that no reader sees half of it.
func (d Dir) Write(name string, perm os.FileMode, v any) error {
	data, err := Indented(v)
	if err != nil {
		return err
	}
	return d.WriteWith(name, perm, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Indented is v as JSON that people can read.
func Indented(v any) ([]byte, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	return append(data, '\n'), err
}

// WriteWith is write of what fill writes.
func (d Dir) WriteWith(name string, perm os.FileMode, fill func(io.Writer) error) error {
	path := filepath.Join(string(d), name)
	temp := path + ".new"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, perm)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, text.CauseOf(err))
	}
	if err = fill(f); err == nil {
		var end int64
		if end, err = f.Seek(0, io.SeekCurrent); err == nil {
			err = f.Truncate(end) // what a spare or an interrupted writer has left
		}
	}
	if err == nil {
		err = f.Chmod(perm) // whatever the umask is
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, text.CauseOf(err))
	}
	return nil
}

// Renew replaces one file also where the file system is full: that it is full has to be published.
func (d Dir) Renew(name string, perm os.FileMode, data []byte) error {
	err := d.WriteWith(name, perm, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if errors.Is(err, unix.ENOSPC) { // the agent may fill that file system in the moment in which a spare is renewed
		err = d.overwrite(name, data)
	}
	if err == nil {
		d.spare(name, perm, max(16<<10, 2*int64(len(data)))) // for one with long faults in it
	}
	return err
}

// overwrite writes over the file that is there, which takes no room on a full file system. Readers may see half of it:
// it is for what could not be replaced. What doesn't fit is not written at all.
func (d Dir) overwrite(name string, data []byte) error {
	path := filepath.Join(string(d), name)
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("write over %s: %w", path, text.CauseOf(err))
	}
	defer f.Close()
	st, err := f.Stat()
	if err == nil {
		pad := int(st.Size()) - len(data) // with blanks: a shorter file would be a second step
		data = append(data, bytes.Repeat([]byte{'\n'}, max(pad, 1))...)
		err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(data)))
	}
	if err == nil {
		_, err = f.WriteAt(data, 0)
	}
	if err != nil {
		return fmt.Errorf("write over %s: %w", path, text.CauseOf(err))
	}
	return nil
}

// spare makes room for the next write of name, of which whoever fills the file system
// takes nothing. Where there is none to be had, that write may fail.
func (d Dir) spare(name string, perm os.FileMode, size int64) {
	f, err := os.OpenFile(filepath.Join(string(d), name+".new"), os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, perm)
	if err != nil {
		return
	}
	defer f.Close()
	_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
}

// Read reads one file into v.
func (d Dir) Read(name string, v any) error {
	data, err := os.ReadFile(filepath.Join(string(d), name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("read %s: %w", filepath.Join(string(d), name), text.CauseOf(err))
	}
	return nil
}

// Published reads a file of the keeper's that runs in this container.
func Published(file string, v any) error {
	dir, err := Find()
	if err == nil {
		err = dir.Read(file, v)
	}
	if err != nil {
		return NotRunning(err)
	}
	return nil
}

// Lock makes the caller the only keeper of this container, for as long as it lives. The file can't be opened by the
// agent, which could hold the lock itself otherwise.
func (d Dir) Lock() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(string(d), lockFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (d Dir) held() bool {
	f, err := os.OpenFile(filepath.Join(string(d), lockFile), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// Kept says whether a keeper is at work. One that was killed has the lock for as
// long as its threads take to end, which is waited for.
func (d Dir) Kept() bool {
	for deadline := time.Now().Add(EndPatience); d.held(); time.Sleep(5 * time.Millisecond) {
		var s State
		if err := d.Read(StatusFile, &s); err != nil || s.Keeper.Alive() || time.Now().After(deadline) {
			return true
		}
	}
	return false
}

// EndPatience is how long a keeper that has failed may take to end.
const EndPatience = 5 * time.Second

// CeilingHome is where ceiling.d is, wherever the policy is. SeenFile has the number of the newest one that was signed.
const (
	CeilingHome = "/etc/agent-init"
	SeenFile    = "/var/lib/agent-init/ceiling/seen"
)

// SavedFile has what people have allowed and denied for good. It is on a volume, or gone with the container.
const SavedFile = "/var/lib/agent-init/allowlist.d/granted.txt"

// PhaseFile is there once a start has begun in the phase setup: it comes once.
const PhaseFile = "/var/lib/agent-init/phase/setup"

// AuditDir is where the audit log is, unless the root file system is read-only.
const AuditDir = "/var/log/agent-init"
