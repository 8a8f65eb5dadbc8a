package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"runtime"

	"golang.org/x/sys/unix"
)

// MaxSecret bounds a secret.
const MaxSecret = 64 << 10

// block is larger than what the runtime packs together: each is a span of pages of its own.
type block [MaxSecret]byte

// Secret is memory for n bytes that is not swapped out and is in no core dump, as far as the system allows
// (RLIMIT_MEMLOCK of getrlimit(2)). It is wiped once nobody refers to it.
func Secret(n int) []byte {
	b := new(block)
	_ = unix.Mlock(b[:n]) // only what is used: the limit may be 64 KiB for all
	_ = unix.Madvise(b[:], unix.MADV_DONTDUMP)
	runtime.SetFinalizer(b, func(b *block) {
		clear(b[:])
		_ = unix.Madvise(b[:], unix.MADV_DODUMP)
		_ = unix.Munlock(b[:])
	})
	return b[:n:n]
}

// Mark tells one file of a login from another, and nothing of what is in it.
func Mark(file []byte) uint64 {
	sum := sha256.Sum256(file)
	return binary.BigEndian.Uint64(sum[:])
}
