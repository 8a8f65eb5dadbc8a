package window

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/audit"
)

// recordFile is where a window is recorded: the keeper hands the server a descriptor that can only append.
//
// The directory and those above it are judged once, and kept: no later renaming has root write elsewhere.
type recordFile struct {
	dir   *os.File
	name  string // in dir
	file  *os.File
	begun time.Time
}

const keptRecords = 4 // kept of each window's place, besides the present one

// openRecord begins a record. One that is there already is kept beside it.
func openRecord(path string) (*recordFile, error) {
	path, err := filepath.Abs(path)
	r := &recordFile{name: filepath.Base(path)}
	if err == nil {
		r.dir, err = audit.OpenDir(filepath.Dir(path))
	}
	if err == nil {
		if err = r.begin(); err != nil {
			r.dir.Close()
		}
	}
	if err != nil {
		return nil, fault.New(fault.Usage, "name a file in a directory that only root can write, such as "+state.AuditDir+"/session.cast", "--record: %w", err)
	}
	return r, nil
}

// begin moves what is there out of the way, and makes a new file that nobody else can read.
func (r *recordFile) begin() error {
	const flags = unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT
	f, err := audit.OpenFile(r.dir, r.name, flags, 0o600)
	if err == nil && sizeOf(f) > 0 {
		f.Close()
		if err = audit.Rotate(r.dir, r.name, keptRecords+1); err == nil {
			f, err = audit.OpenFile(r.dir, r.name, flags, 0o600)
		}
	}
	if err != nil {
		return err
	}
	if err := f.Chmod(0o600); err != nil {
		f.Close()
		return err
	}
	if r.file != nil {
		r.file.Close()
	}
	r.file, r.begun = f, time.Now()
	return nil
}

func (r *recordFile) close() {
	if r != nil {
		r.file.Close()
	}
}

func sizeOf(f *os.File) int64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// recordFor begins the record of a window. The first window's is the file that was named; each of the others takes the
// lowest place that no window is recorded to, so that there are no more files than windows at once. The lock is held.
func (s *Session) recordFor(id uint32) (*recordFile, uint32, error) {
	if s.record == nil || id == 0 {
		return s.record, 0, nil
	}
	taken := map[uint32]bool{}
	for _, w := range s.windows {
		taken[w.place] = true
	}
	place := uint32(1)
	for taken[place] {
		place++
	}
	r := &recordFile{dir: s.record.dir, name: fmt.Sprintf("%s.w%d", s.record.name, place)}
	if err := r.begin(); err != nil {
		return nil, 0, fmt.Errorf("record it: %w", err)
	}
	return r, place, nil
}

// handRecord gives the server a window's file, if it is recorded. The lock is held.
func (s *Session) handRecord(w *sessionWindow) {
	if w.record != nil {
		s.tell(wire.Message{Op: sessionop.Record, ID: w.id, Value: w.record.begun.UnixNano(), Arg: uint64(sizeOf(w.record.file))}, w.record.file)
	}
}

// rotateRecord begins another file, if this one is really full: what the server says does not push records out.
func (s *Session) rotateRecord(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.windows[id]
	if w == nil || w.record == nil || s.live == nil || sizeOf(w.record.file) < s.host.RecordLimit {
		return
	}
	if err := w.record.begin(); err != nil {
		s.host.Log.Error("beginning another record", "error", err)
		s.note(audit.Fault, 0, "cannot begin another record: %v", err)
		return
	}
	s.handRecord(w)
}
