package broker

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/broker/login"
)

// journal is a file that the keeper has lent, for one answer to a refresh: which token was asked with, how long the
// answer is, and the answer. An empty file has none.
type journal struct{ f *os.File }

const (
	journalLength = sha256.Size
	journalBody   = journalLength + 4
)

// write has the answer on the disk when it returns.
func (j journal) write(asked [sha256.Size]byte, answer []byte) error {
	if j.f == nil {
		return nil
	}
	// In one piece: who is killed has written all of it, or nothing.
	whole := append(binary.BigEndian.AppendUint32(asked[:], uint32(len(answer))), answer...)
	if _, err := j.f.WriteAt(whole, 0); err != nil {
		return err
	}
	return j.f.Sync()
}

// lock has nobody else refresh the same login: agents in several containers may share the volume that it is on. The lock
// ends with the process. Where there are no locks, who is second has its token refused.
func (j journal) lock() (unlock func(), err error) {
	if j.f == nil {
		return func() {}, nil
	}
	fd := int(j.f.Fd())
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK {
		return nil, errors.New("another agent with the same login is refreshing it")
	}
	return func() { _ = unix.Flock(fd, unix.LOCK_UN) }, nil // or it was none
}

// reserve takes the room that any answer needs, so that the disk is not full when one has come.
func (j journal) reserve() error {
	if j.f == nil {
		return nil
	}
	if _, err := j.f.WriteAt(make([]byte, journalBody+login.MaxAnswer), 0); err != nil {
		return err
	}
	return j.f.Sync()
}

// read returns the answer to who asked with that token, nil if there is none.
func (j journal) read(asked [sha256.Size]byte) []byte {
	if j.f == nil {
		return nil
	}
	var head [journalBody]byte
	if _, err := j.f.ReadAt(head[:], 0); err != nil {
		return nil // a new one is empty
	}
	n := binary.BigEndian.Uint32(head[journalLength:])
	if n == 0 || n > login.MaxAnswer || [sha256.Size]byte(head[:journalLength]) != asked {
		return nil
	}
	answer := make([]byte, n)
	if _, err := j.f.ReadAt(answer, journalBody); err != nil {
		return nil
	}
	return answer
}

// clear forgets the answer.
func (j journal) clear() error {
	if j.f == nil {
		return nil
	}
	return errors.Join(j.f.Truncate(0), j.f.Sync())
}
