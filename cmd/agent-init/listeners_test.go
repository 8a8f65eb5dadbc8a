package main

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
)

// TestGuardSocketsRefuse: while there is no guard, connections are refused and
// the ports stay taken; the next guard gets them again.
func TestGuardSocketsRefuse(t *testing.T) {
	s, err := openGuardSockets(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	dial := func(port uint16) error {
		c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), 5*time.Second)
		if err == nil {
			c.Close()
		}
		return err
	}
	waiting, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.gate4))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.refuse(); err != nil {
			t.Fatal(err)
		}
		for _, port := range []uint16{s.dns4, s.gate4} {
			if err := dial(port); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("port %d: %v", port, err)
			}
			if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
				l.Close()
				t.Errorf("port %d was free to take", port)
			}
		}
		if err := s.accept(); err != nil {
			t.Fatal(err)
		}
		for _, port := range []uint16{s.dns4, s.gate4} {
			if err := dial(port); err != nil {
				t.Errorf("port %d: %v", port, err)
			}
		}
	}
	if err := waiting.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := waiting.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection that waited: %v", err)
	}
}

// TestLentSocketsAreNotWatched: what comes in on the guard's sockets is not to wake
// the keeper up.
func TestLentSocketsAreNotWatched(t *testing.T) {
	s, err := openGuardSockets(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	own, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	watched := polled(t)
	if len(watched) == 0 {
		t.Fatal("no descriptor is watched, though a listener is open")
	}
	for _, f := range s.files {
		if fd := int(f.Fd()); watched[fd] {
			t.Errorf("descriptor %d is watched", fd)
		}
		f.Close()
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
