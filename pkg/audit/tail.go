package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// tailSize is how much of a file's end is read to find its last event: many
// times a line.
const tailSize = 64 << 10

// lastSeq returns the number of the last event in f, or, if f holds none since
// it was just rotated, of the last one in the file before it; 0 if there is none.
func lastSeq(dir, f *os.File) (uint64, error) {
	seq, err := seqAtEnd(f)
	if err != nil || seq > 0 {
		return seq, err
	}
	before := numbered(FileName, 1)
	fd, err := unix.Openat(int(dir.Fd()), before, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("open %s in %s: %w", before, dir.Name(), linkError(err, unix.ELOOP))
	}
	old := os.NewFile(uintptr(fd), dir.Name()+"/"+before)
	defer old.Close()
	if err := ownFile(old); err != nil {
		return 0, err
	}
	return seqAtEnd(old)
}

// seqAtEnd reads f's end backwards to a line that is an event. The last line
// may have been cut short by a crash or a full disk.
func seqAtEnd(f *os.File) (uint64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	tail := make([]byte, min(st.Size(), tailSize))
	if _, err := f.ReadAt(tail, st.Size()-int64(len(tail))); err != nil && len(tail) > 0 {
		return 0, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	for _, line := range slices.Backward(bytes.Split(tail, []byte{'\n'})) {
		var e struct {
			Seq uint64 `json:"seq"`
		}
		if json.Unmarshal(line, &e) == nil && e.Seq > 0 {
			return e.Seq, nil
		}
	}
	return 0, nil
}
