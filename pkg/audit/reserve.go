package audit

import (
	"errors"

	"golang.org/x/sys/unix"
)

// maxReserve bounds the room that is held back on the file system of the log.
const maxReserve = 1 << 20

// reserve holds back blocks for the lines after the next one, of size bytes: whoever
// fills the file system, which may be the agent's too, leaves them to the log. It is
// asked for again when half of it is used. The file's size stays as it is
// (fallocate(2), FALLOC_FL_KEEP_SIZE), and within maxSize. A file system without
// room, or without such a thing, is no fault: that is found when a line fails.
func (l *Log) reserve(size int64) {
	room := min(maxReserve, l.maxSize/4)
	end := min(l.size+size+room, l.maxSize)
	if l.held < 0 || l.held >= end || l.held-l.size-size >= room/2 {
		return
	}
	err := unix.Fallocate(int(l.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, l.size, end-l.size)
	switch {
	case err == nil:
		l.held = end
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		l.held = -1
	}
}
