package attach

import (
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// What a terminal has no room for waits, whether it blocks or somebody has made it not block.
func TestWriteWaits(t *testing.T) {
	for _, blocks := range []bool{true, false} {
		master, tty, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer master.Close()
		defer tty.Close()
		a := &attachment{out: int(tty.Fd())}
		if err := unix.SetNonblock(a.out, !blocks); err != nil {
			t.Fatal(err)
		}
		const size = 1 << 20
		ended := make(chan error, 1)
		go func() { ended <- a.write(make([]byte, size)) }()
		select {
		case err := <-ended:
			t.Fatalf("it blocks: %t: all was taken, and nobody reads: %v", blocks, err)
		case <-time.After(50 * time.Millisecond):
		}
		for n, b := 0, make([]byte, 64<<10); n < size; {
			m, err := master.Read(b)
			if err != nil {
				t.Fatalf("it blocks: %t: %v after %d bytes", blocks, err, n)
			}
			n += m
		}
		if err := <-ended; err != nil {
			t.Errorf("it blocks: %t: %v", blocks, err)
		}
	}
}
