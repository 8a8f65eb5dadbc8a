// Package buffer has what bytes pass through between a client and a server. Most streams wait most of the time, so that
// each has a small buffer. Few of those that are fast have a large one.
package buffer

import "sync"

const (
	Small = 2 << 10 // of a stream that waits: some events
	Large = 64 << 10

	maxLarge = 64 // at once, of the whole process: whoever takes one may come to wait for a client with it
)

var (
	turns = make(chan struct{}, maxLarge)
	spare = sync.Pool{New: func() any { return new([Large]byte) }}
)

// Buffer is that of one direction of a stream.
type Buffer struct {
	small [Small]byte
	large *[Large]byte
}

// Bytes are all of it.
func (b *Buffer) Bytes() []byte {
	if b.large != nil {
		return b.large[:]
	}
	return b.small[:]
}

// Fit makes the buffer large if the last read has filled it, as far as there is a large one, and small if the last read
// would have fitted. What was read is void.
func (b *Buffer) Fit(read int, full bool) {
	switch {
	case b.large != nil && read < Small:
		b.Free()
	case b.large == nil && full:
		select {
		case turns <- struct{}{}:
			b.large = spare.Get().(*[Large]byte)
		default:
		}
	}
}

// Free gives the large buffer back. It comes last.
func (b *Buffer) Free() {
	if b.large != nil {
		spare.Put(b.large)
		b.large = nil
		<-turns
	}
}
