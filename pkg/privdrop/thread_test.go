package privdrop

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestOnThread: the main thread, which does not end, is never the one.
func TestOnThread(t *testing.T) {
	for range 200 {
		ran := false
		OnThread(func() { ran = unix.Gettid() != unix.Getpid() })
		if !ran {
			t.Fatal("not run, or on the main thread")
		}
	}
}
