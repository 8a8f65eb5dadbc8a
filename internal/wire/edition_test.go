package wire

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// TestEditionSealed: whoever gets the descriptor reads what the keeper writes, and
// has no way to write, to cut it off, or to undo that.
func TestEditionSealed(t *testing.T) {
	e, err := NewEdition()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(e.File.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := OpenEdition(os.NewFile(uintptr(fd), "edition"))
	if err != nil {
		t.Fatal(err)
	}
	e.Add(1)
	if n := theirs.Load(); n != 1 {
		t.Errorf("the guard reads %d", n)
	}
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", e.File.Fd()), os.O_RDWR, 0) // which only root can
	if os.Geteuid() != 0 {
		mustrun.Lacks(t, "only root can open it once more")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if st, err := e.File.Stat(); err != nil || st.Mode().Perm() != 0o400 {
		t.Errorf("others can open it once more: %v, %v", st.Mode(), err)
	}
	if _, err := unix.Pwrite(int(e.File.Fd()), []byte{9}, 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("write by the descriptor that the guard gets: %v", err)
	}
	own := int(again.Fd())
	for what, try := range map[string]func() error{
		"map it": func() error {
			_, err := unix.Mmap(own, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			return err
		},
		"write":  func() error { _, err := unix.Pwrite(own, []byte{9}, 0); return err },
		"cut":    func() error { return unix.Ftruncate(own, 0) },
		"punch":  func() error { return unix.Fallocate(own, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 8) },
		"unseal": func() error { _, err := unix.FcntlInt(uintptr(own), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); return err },
	} {
		if err := try(); !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
			t.Errorf("%s: %v", what, err)
		}
	}
	b, err := unix.Mmap(own, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE); !errors.Is(err, unix.EACCES) {
		t.Errorf("make the mapping writable: %v", err)
	}
	if n := e.Load(); n != 1 {
		t.Errorf("it is %d by now", n)
	}
}
