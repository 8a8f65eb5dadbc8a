package attach

import (
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// A terminal that could be opened once more does not block, and those that others have of it still do.
func TestOpenTerminal(t *testing.T) {
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer tty.Close()
	given := int(tty.Fd()) // which makes it block
	for name, own := range map[string]bool{"others'": false, "own": true} {
		a := &attachment{o: Options{In: tty, Out: tty, Own: own}, buf: make([]byte, 64)}
		done := a.openTerminal()
		if a.patient || !nonblocking(t, a.in) || !nonblocking(t, a.out) || nonblocking(t, given) != own {
			t.Errorf("%s: patient: %t; it blocks: %t, %t; the one given: %t", name, a.patient, !nonblocking(t, a.in), !nonblocking(t, a.out), !nonblocking(t, given))
		}
		if n, err := a.read(); n != 0 || err != unix.EAGAIN {
			t.Errorf("%s: nothing was typed, and %d bytes came, %v", name, n, err)
		}
		done()
	}
}

// What a terminal has no room for waits, with one's own descriptor and with others'.
func TestWriteWaits(t *testing.T) {
	for name, patient := range map[string]bool{"others'": true, "own": false} {
		master, tty, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer master.Close()
		defer tty.Close()
		a := &attachment{o: Options{In: tty, Out: tty}, patient: patient}
		if patient {
			a.out = int(tty.Fd())
		} else {
			defer a.openTerminal()()
		}
		const size = 1 << 20
		ended := make(chan error, 1)
		go func() { ended <- a.write(make([]byte, size)) }()
		select {
		case err := <-ended:
			t.Fatalf("%s: all was taken, and nobody reads: %v", name, err)
		case <-time.After(50 * time.Millisecond):
		}
		for n, b := 0, make([]byte, 64<<10); n < size; {
			m, err := master.Read(b)
			if err != nil {
				t.Fatalf("%s: %v after %d bytes", name, err, n)
			}
			n += m
		}
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func nonblocking(t *testing.T, fd int) bool {
	t.Helper()
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		t.Fatal(err)
	}
	return flags&unix.O_NONBLOCK != 0
}
