package firewall

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// TestLastConnection: what is open goes on, and the socket makes no other connection, also to where it was.
func TestLastConnection(t *testing.T) {
	mustrun.Root(t)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := LastConnection(f); err != nil {
		t.Fatal(err)
	}
	go io.Copy(s, s)
	got := make([]byte, 4)
	if _, err := c.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "ping" {
		t.Fatalf("what is open: %q, %v", got, err)
	}
	fd := int(f.Fd())
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("the filter can be taken off: %v", err)
	}
	var nowhere [16]byte // AF_UNSPEC
	if _, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&nowhere)), 16); errno != 0 {
		t.Fatalf("disconnect: %v", errno)
	}
	unix.SetNonblock(fd, false)
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_SYNCNT, 1) // to give up soon
	to := &unix.SockaddrInet4{Port: l.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
	if err := unix.Connect(fd, to); !errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("connected anew: %v", err)
	}
}

// TestLastConnectionOthers: what is no socket of TCP is an error.
func TestLastConnectionOthers(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if err := LastConnection(r); err == nil {
		t.Error("a pipe was taken")
	}
}
