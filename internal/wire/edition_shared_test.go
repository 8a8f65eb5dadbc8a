package wire

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEdition: the guard sees at once what the keeper writes, and can neither
// write it nor cut it off.
func TestEdition(t *testing.T) {
	ours, err := NewEdition()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.File.Close()
	fd, err := unix.Dup(int(ours.File.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "theirs")
	if err := f.Truncate(0); err == nil {
		t.Fatal("the memory can be cut off")
	}
	theirs, err := OpenEdition(f)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		ours.Add(1)
		if got, want := theirs.Load(), ours.Load(); got != want || got == 0 {
			t.Errorf("the guard reads %d, the keeper wrote %d", got, want)
		}
	}
	if _, err := OpenEdition(mustTemp(t)); err == nil {
		t.Error("an empty file is taken for memory")
	}
}

// mustTemp returns a descriptor that can't be mapped.
func mustTemp(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
