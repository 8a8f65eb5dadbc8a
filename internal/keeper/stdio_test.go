package keeper

import (
	"os"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// TestHungUp: a terminal whose other end was closed is told from one that is
// there, and from what is none.
func TestHungUp(t *testing.T) {
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	for _, f := range []*os.File{slave, w} {
		if ttyError(int(f.Fd())) == unix.EIO {
			t.Errorf("%s passes for a lost terminal", f.Name())
		}
	}
	if isPipe(int(slave.Fd())) || !isPipe(int(w.Fd())) || ttyError(int(w.Fd())) == nil || ttyError(int(slave.Fd())) != nil {
		t.Error("a pipe and a terminal are taken for each other")
	}
	master.Close()
	if ttyError(int(slave.Fd())) != unix.EIO {
		t.Error("the lost terminal was not noticed")
	}
}
