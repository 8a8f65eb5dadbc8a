package wire

import (
	"runtime"
	"testing"
	"unsafe"
)

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
		if string(unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), 6)) != "canary" {
			break
		}
	}
	if got := string(unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), 6)); got == "canary" {
		t.Error("it is still there")
	}
	if string(kept) != "kept" {
		t.Errorf("another one is %q", kept)
	}
}
