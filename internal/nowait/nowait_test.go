package nowait

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFull: what is written is what room there is for, it is read as it was written, and neither waits.
func TestFull(t *testing.T) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[0])
	if n, errno := Read(p[0], make([]byte, 8)); n != 0 || errno != unix.EAGAIN {
		t.Errorf("read of nothing: %d, %v", n, errno)
	}
	wrote := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
	n, errno := Write(p[1], wrote)
	if n == 0 || n == len(wrote) || errno != unix.EAGAIN {
		t.Fatalf("wrote %d of %d, %v", n, len(wrote), errno)
	}
	unix.Close(p[1])
	var all []byte
	for b := make([]byte, 1<<16); ; {
		m, errno := Read(p[0], b)
		if errno != 0 {
			t.Fatal(errno)
		}
		if m == 0 {
			break
		}
		all = append(all, b[:m]...)
	}
	if !bytes.Equal(all, wrote[:n]) {
		t.Errorf("read %d bytes of %d, or others", len(all), n)
	}
	if m, errno := Write(-1, wrote); m != 0 || errno != unix.EBADF {
		t.Errorf("write to nothing: %d, %v", m, errno)
	}
}
