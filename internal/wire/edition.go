package wire

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Edition counts how often the book of leases has lost something before its time: a word of memory that the keeper
// writes and the guard reads. What the guard remembers of the book is void at once, without a message that could be late.
type Edition struct {
	*atomic.Uint64
	File *os.File // that the memory belongs to; the keeper's
}

// NewEdition is the keeper's.
func NewEdition() (*Edition, error) {
	fd, err := unix.MemfdCreate("edition", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "edition")
	defer f.Close()
	e := &Edition{}
	// Memory that another process can cut off would be a way to end this one.
	err = f.Truncate(int64(os.Getpagesize()))
	if err == nil {
		err = e.mapped(fd, unix.PROT_READ|unix.PROT_WRITE)
	}
	if err == nil {
		err = sealForever(fd)
	}
	// Who gets the descriptor reads, and opens no other: the file is root's alone.
	if err == nil {
		err = f.Chmod(0o400)
	}
	if err == nil {
		e.File, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	}
	if err != nil {
		return nil, fmt.Errorf("memory for the guard: %w", err)
	}
	return e, nil
}

// sealForever leaves nobody a way to write but the mapping that there is; before Linux 5.1, only the mode is against it.
func sealForever(fd int) error {
	const size = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, size|unix.F_SEAL_FUTURE_WRITE)
	if errors.Is(err, unix.EINVAL) {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, size)
	}
	return err
}

// OpenEdition is the guard's, who takes over f.
func OpenEdition(f *os.File) (*Edition, error) {
	defer f.Close()
	e := &Edition{}
	if err := e.mapped(int(f.Fd()), unix.PROT_READ); err != nil {
		return nil, fmt.Errorf("memory of the keeper: %w", err)
	}
	return e, nil
}

// mapped maps the word for as long as the process lives.
func (e *Edition) mapped(fd, prot int) error {
	b, err := unix.Mmap(fd, 0, os.Getpagesize(), prot, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	e.Uint64 = (*atomic.Uint64)(unsafe.Pointer(&b[0]))
	return nil
}
