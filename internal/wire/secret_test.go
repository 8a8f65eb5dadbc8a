package wire

import (
	"runtime"
	"testing"
	"unsafe"
)

// read is what stands at an address now, also where the collector has taken it back, of which the race detector's checks
// of pointers would end the process.
//
//go:nocheckptr
func read(at *uintptr) string {
	return string((*(*[6]byte)(*(*unsafe.Pointer)(unsafe.Pointer(at))))[:])
}

// TestSecretIsWiped: the memory of a secret that nobody refers to holds it no more.
func TestSecretIsWiped(t *testing.T) {
	s := Secret(6)
	copy(s, "canary")
	at := uintptr(unsafe.Pointer(&s[0]))
	kept := Secret(4)
	copy(kept, "kept")
	if at%4096 != 0 {
		t.Errorf("the block begins at %#x, within a page", at)
	}
	s = nil
	for range 100 {
		runtime.GC()
		if read(&at) != "canary" {
			break
		}
	}
	if read(&at) == "canary" {
		t.Error("it is still there")
	}
	if string(kept) != "kept" {
		t.Errorf("another one is %q", kept)
	}
}
