package ready

import (
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/nowait"
)

// pair returns both ends of a connection.
func pair(t *testing.T) (near, far *File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*File
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "end")
		ends[i], err = Duplicate(file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(ends[i].Close)
	}
	return ends[0], ends[1]
}

// later does something while the test waits.
func later(do func()) { time.AfterFunc(20*time.Millisecond, do) }

func TestRead(t *testing.T) {
	near, far := pair(t)
	later(func() { far.WriteNow([]byte("come")) })
	b := make([]byte, 3)
	for _, want := range []string{"com", "e"} {
		if n, err := near.Read(b); err != nil || string(b[:n]) != want {
			t.Fatalf("read %q, %v, want %q", b[:n], err, want)
		}
	}
	if err := near.ReadUntil(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := near.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("nothing came, and the read said %v", err)
	}
	if err := near.ReadUntil(time.Time{}); err != nil {
		t.Fatal(err)
	}
	later(far.Close)
	if _, err := near.Read(b); err != io.EOF {
		t.Errorf("the other end went, and the read said %v", err)
	}
}

// TestFlood: while much is read, nobody is woken up; and what comes just before somebody is again, is not missed.
func TestFlood(t *testing.T) {
	near, far := pair(t)
	if err := near.ReadUntil(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	// read waits for something. It calls nothing each time that nothing is there, and again once it is heard of.
	read := func(nothing func()) string {
		n := 0
		err := near.ReadBy(func(fd int) bool {
			if n, _ = nowait.Read(fd, b); n > 0 {
				near.Flood(fd)
				return true
			}
			nothing()
			return false
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	write := func(text string) func() { return sync.OnceFunc(func() { far.WriteNow([]byte(text)) }) }
	first, more, last := write("first"), write("more"), write("last")
	for _, c := range []struct {
		want    string
		nothing func()
	}{
		{"first", func() { later(first) }}, // heard of while it is there: then the kernel tells of nothing more
		{"more", more},                     // nobody hears of it
		{"last", func() { later(last) }},
	} {
		if got := read(c.nothing); got != c.want {
			t.Errorf("read %q, want %q", got, c.want)
		}
	}
	write("unheard")()
	if n, _ := unix.EpollWait(near.in.ep, make([]unix.EpollEvent, 1), 0); n > 0 {
		t.Error("woken up in the middle of a flood")
	}
}

func TestWrite(t *testing.T) {
	near, far := pair(t)
	sent := near.WriteNow(make([]byte, 8<<20))
	if sent == 0 || sent == 8<<20 {
		t.Fatalf("%d bytes were taken at once", sent)
	}
	n, err := near.Write([]byte("more"), time.Now().Add(20*time.Millisecond))
	if n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes were taken, %v, though there was no room", n, err)
	}
	came := make(chan int, 1)
	later(func() {
		n, b := 0, make([]byte, 64<<10)
		for n < sent+8<<20 {
			m, err := far.Read(b)
			if err != nil {
				break
			}
			n += m
		}
		came <- n
	})
	if n, err := near.Write(make([]byte, 8<<20), time.Now().Add(10*time.Second)); n != 8<<20 || err != nil {
		t.Errorf("%d bytes were taken, %v", n, err)
	}
	if n := <-came; n != sent+8<<20 {
		t.Errorf("%d bytes came, not %d", n, sent+8<<20)
	}
	far.Close()
	if _, err := near.Write([]byte("x"), time.Now().Add(time.Second)); !errors.Is(err, unix.EPIPE) {
		t.Errorf("nobody is there, and the write said %v", err)
	}
}

// Who waits is told when the file is closed, and nobody uses the number of its descriptor afterwards.
func TestClose(t *testing.T) {
	near, _ := pair(t)
	near.WriteNow(make([]byte, 8<<20))
	ends := make(chan error, 2)
	go func() {
		_, err := near.Read(make([]byte, 1))
		ends <- err
	}()
	go func() {
		_, err := near.Write([]byte("x"), time.Now().Add(time.Minute))
		ends <- err
	}()
	time.Sleep(20 * time.Millisecond)
	near.Close()
	near.Close()
	for range 2 {
		if err := <-ends; !errors.Is(err, os.ErrClosed) {
			t.Errorf("it ended with %v", err)
		}
	}
	if n := near.WriteNow([]byte("x")); n != 0 {
		t.Error("what is closed was written")
	}
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("what is closed was read: %v", err)
	}
	if _, err := near.Write([]byte("x"), time.Now().Add(time.Second)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("what is closed was written: %v", err)
	}
	if err := near.Use(func(int) { t.Error("what is closed was used") }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("it is closed, and %v", err)
	}
}

// Room to write wakes up nobody who waits for something to read.
func TestRoomWakesNobody(t *testing.T) {
	near, far := pair(t)
	tries := make(chan struct{}, 100)
	go func() {
		_ = near.ReadBy(func(int) bool {
			tries <- struct{}{}
			return false
		})
	}()
	<-tries
	b := make([]byte, 8)
	for range 10 {
		near.WriteNow([]byte("x"))
		if _, err := far.Read(b); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(20 * time.Millisecond)
	if n := len(tries); n > 0 {
		t.Errorf("the other side has read, and who reads was woken up %d times", n)
	}
}
