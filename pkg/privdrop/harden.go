package privdrop

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Harden makes the calling process undumpable, so that no other uid can read
// its memory, environment or descriptors, and reduces the capabilities of all
// its threads to keep (unix.CAP_… numbers), as far as it holds those. It needs
// a binary that was built without cgo.
//
// The bounding set stays, since children that Exec need it. What the caller
// must keep for them is ExecCapabilities: under no_new_privs, executing a file
// gives root nothing back.
func Harden(keep ...int) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("become undumpable: %w", err)
	}
	have, err := getCaps()
	if err != nil {
		return err
	}
	var wanted uint64
	for _, c := range keep {
		wanted |= 1 << c
	}
	// With the inheritable set, which is left empty, the ambient set goes by itself.
	left := capSets{effective: have.permitted & wanted, permitted: have.permitted & wanted}
	header, data := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, left.data()
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(header)), uintptr(unsafe.Pointer(data)), 0)
	runtime.KeepAlive(header)
	runtime.KeepAlive(data)
	if errno == syscall.ENOTSUP {
		return errors.New("drop capabilities: this binary was built with cgo: build it with CGO_ENABLED=0")
	}
	if errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	if now, err := getCaps(); err != nil || now != left {
		return fmt.Errorf("drop capabilities: they are %x where %x was asked for (%v)", now, left, err)
	}
	return nil
}
