package wire

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Memfd holds v as JSON, sealed against change, at its start.
func Memfd(name string, v any) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	err = json.NewEncoder(f).Encode(v)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("memfd: %w", err)
	}
	return f, nil
}

// maxMemfd bounds what is read of one, in bytes of JSON: the policy's files may be long.
const maxMemfd = 256 << 20

// ReadMemfd reads what Memfd holds into v.
func ReadMemfd(f *os.File, v any) error {
	return json.NewDecoder(io.LimitReader(f, maxMemfd)).Decode(v)
}

// Inherit opens a descriptor that the process was started with, and closes it.
func Inherit[T any](fd uintptr, open func(*os.File) (T, error)) (T, error) {
	f := os.NewFile(fd, "inherited")
	defer f.Close()
	v, err := open(f)
	if err != nil {
		return v, fmt.Errorf("inherit socket %d: %w", fd, err)
	}
	return v, nil
}
