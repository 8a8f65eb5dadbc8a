package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/audit"
)

// recordFile is where a session is recorded. The keeper opens it, and hands
// the server a descriptor that can only append.
type recordFile struct {
	path  string
	file  *os.File
	begun time.Time
}

// Records that are kept, besides the present one, and the size at which one is
// full enough to be taken away.
const (
	keptRecords  = 4
	recordIsFull = 64 << 20
)

// openRecord begins a record. One that is there already is kept beside it.
func openRecord(path string) (*recordFile, error) {
	path, err := filepath.Abs(path)
	if err == nil {
		err = checkRuntimeDir(filepath.Dir(path))
	}
	if err != nil {
		return nil, faultf(exitUsage, "name a file in a directory that belongs to root, such as "+auditDir+"/session.cast",
			"--record %s: %w", path, err)
	}
	r := &recordFile{path: path}
	if err := r.begin(); err != nil {
		return nil, faultf(exitUsage, "name a file in a directory that belongs to root, such as "+auditDir+"/session.cast", "--record: %w", err)
	}
	return r, nil
}

// begin moves what is there out of the way, and makes a new file that nobody
// else can read.
func (r *recordFile) begin() error {
	var st unix.Stat_t
	err := unix.Lstat(r.path, &st)
	switch {
	case errors.Is(err, unix.ENOENT):
	case err != nil:
		return fmt.Errorf("%s: %w", r.path, err)
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != 0:
		return fmt.Errorf("%s is not a file of root's", r.path)
	case st.Size > 0:
		for n := keptRecords - 1; n > 0; n-- {
			err := os.Rename(fmt.Sprintf("%s.%d", r.path, n), fmt.Sprintf("%s.%d", r.path, n+1))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		if err := os.Rename(r.path, r.path+".1"); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
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

func (r *recordFile) size() int64 {
	info, err := r.file.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// handRecord gives the server the file. The lock is held.
func (s *sessionKeeper) handRecord() {
	m := sessionMessage{op: sopRecord, value: s.record.begun.UnixNano(), arg: uint64(s.record.size())}
	if err := s.live.send(m, s.record.file); err != nil {
		s.keeper.log.Debug("handing the record to the session server", "error", err)
	}
}

// rotateRecord begins another file, if this one is really full: what the
// server says does not push records out.
func (s *sessionKeeper) rotateRecord() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record == nil || s.live == nil || s.record.size() < recordIsFull {
		return
	}
	if err := s.record.begin(); err != nil {
		s.keeper.log.Error("beginning another record", "error", err)
		s.keeper.record(audit.Event{Kind: audit.Session, Verdict: audit.Fault, Reason: "cannot begin another record: " + err.Error()})
		return
	}
	s.handRecord()
}
