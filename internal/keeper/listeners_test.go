package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestGuardSocketsRefuse: while there is no guard, connections are reset, those that
// wait included; the next guard gets them again.
func TestGuardSocketsRefuse(t *testing.T) {
	s := openSockets(t)
	waiting := dialGuard(t, s.gate4)
	for range 3 {
		for range 2 { // a guard may end before it has started
			if err := s.refuse(); err != nil {
				t.Fatal(err)
			}
		}
		for _, port := range []uint16{s.dns4, s.gate4} {
			c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Minute)
			if err == nil { // else it was reset before connect(2) was done
				err = endOf(c, 5*time.Second)
				c.Close()
			}
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("port %d: %v", port, err)
			}
		}
		accept(t, s)
		accept(t, s)
		for _, port := range []uint16{s.dns4, s.gate4} {
			if err := endOf(dialGuard(t, port), 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("port %d: %v", port, err)
			}
		}
	}
	if err := endOf(waiting, 5*time.Second); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection that waited: %v", err)
	}
}

// TestGuardSocketsStayTaken: nobody else can listen at the guard's ports at any
// moment, while guards come and go and their connections end on the ports.
func TestGuardSocketsStayTaken(t *testing.T) {
	s := openSockets(t)
	stop, had := make(chan struct{}), make(chan int)
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	}}
	tried := make(chan struct{}, 1)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				had <- n
				return
			default:
			}
			for _, host := range []string{"0.0.0.0", "127.0.0.1"} {
				if l, err := lc.Listen(context.Background(), "tcp4", fmt.Sprintf("%s:%d", host, s.gate4)); err == nil {
					l.Close()
					n++
				}
			}
			select {
			case tried <- struct{}{}:
			default:
			}
		}
	}()
	guard, err := net.FileListener(s.files[2])
	if err != nil {
		t.Fatal(err)
	}
	defer guard.Close()
	if err := guard.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for range 300 {
		c := dialGuard(t, s.gate4)
		g, err := guard.Accept()
		if err != nil {
			t.Fatal(err)
		}
		g.Close() // this end waits in TIME_WAIT
		c.Close()
		if err := s.refuse(); err != nil {
			t.Fatal(err)
		}
		accept(t, s)
		<-tried
	}
	close(stop)
	if n := <-had; n != 0 {
		t.Errorf("the port was had %d times", n)
	}
}

// TestGuardSocketsShutDown: a guard may shut down what it was lent. Nobody else gets
// the ports, and the next guard listens again.
func TestGuardSocketsShutDown(t *testing.T) {
	s := openSockets(t)
	for range 3 {
		for _, i := range []int{1, 2} {
			if err := unix.Shutdown(int(s.files[i].Fd()), unix.SHUT_RDWR); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.refuse(); err != nil {
			t.Fatal(err)
		}
		for _, port := range []uint16{s.dns4, s.gate4} {
			if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
				l.Close()
				t.Errorf("port %d was free to take", port)
			}
		}
		accept(t, s)
		for _, port := range []uint16{s.dns4, s.gate4} {
			dialGuard(t, port)
		}
	}
}

func accept(t *testing.T, s *guardSockets) {
	t.Helper()
	if err := s.accept(); err != nil {
		t.Fatal(err)
	}
}

func openSockets(t *testing.T) *guardSockets {
	t.Helper()
	s, err := openGuardSockets(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.accept()
		for _, f := range s.files {
			f.Close()
		}
	})
	return s
}

func dialGuard(t *testing.T, port uint16) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// endOf says how a connection ends within d.
func endOf(c net.Conn, d time.Duration) error {
	if err := c.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	return err
}

// TestLentSocketsAreNotWatched: what comes in on the guard's sockets is not to wake
// the keeper up.
func TestLentSocketsAreNotWatched(t *testing.T) {
	s := openSockets(t)
	own, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	for range 2 { // also after a time without a guard
		if err := s.refuse(); err != nil {
			t.Fatal(err)
		}
		accept(t, s)
	}
	watched := polled(t)
	if len(watched) == 0 {
		t.Fatal("no descriptor is watched, though a listener is open")
	}
	for _, f := range s.files {
		if fd := int(f.Fd()); watched[fd] {
			t.Errorf("descriptor %d is watched", fd)
		}
	}
}

// polled are the descriptors that this process's epoll instances watch (proc(5),
// /proc/PID/fdinfo).
func polled(t *testing.T) map[int]bool {
	t.Helper()
	infos, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	out := map[int]bool{}
	for _, path := range infos {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // the one that the directory was read by
		}
		for line := range strings.Lines(string(data)) {
			var fd int
			if _, err := fmt.Sscanf(line, "tfd: %d", &fd); err == nil {
				out[fd] = true
			}
		}
	}
	return out
}
