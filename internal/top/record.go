package top

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// recorder writes what is shown to a file, a line of JSON for each look.
type recorder struct {
	file *os.File
	left int64
}

const (
	maxRecorded     = 64 << 20 // bytes of a file
	maxRecordedRows = 1000     // connections of a line, the first as they are sorted
)

var errFull = errors.New("the file has 64 MB")

// newRecorder makes the file, which nobody may have prepared: who looks may be root, in a directory of the agent's.
func newRecorder(name string) (*recorder, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	return &recorder{f, maxRecorded}, nil
}

func (r *recorder) write(s Shown) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if r.left -= int64(len(data)) + 1; r.left < 0 {
		return errFull
	}
	_, err = r.file.Write(append(data, '\n'))
	return err
}

// recordName is a file for what is seen from now on.
func recordName(now time.Time) string {
	return "agent-init-top-" + now.UTC().Format("20060102T150405Z") + ".jsonl"
}

// Seen is s as it is shown: filtered and sorted, and no more of it than a file takes.
func (v *View) Seen(s Shown) Shown {
	if v.frozen != nil {
		s = *v.frozen
	}
	list := v.sorted(s.Connections)
	if more := len(list) - maxRecordedRows; more > 0 {
		list, s.More = list[:maxRecordedRows], s.More+more
	}
	s.Connections = make([]Connection, len(list))
	for i, c := range list {
		s.Connections[i] = *c
	}
	s.Requests = slices.DeleteFunc(slices.Clone(s.Requests), func(g request) bool { return !v.wants(g.Target, g.Reason) })
	s.Refused = slices.DeleteFunc(slices.Clone(s.Refused), func(n Name) bool { return !v.wants(n.Name, n.Process, n.Reason) })
	s.Asked = slices.DeleteFunc(slices.Clone(s.Asked), func(n Name) bool { return !v.wants(n.Name, n.Process) })
	return s
}
