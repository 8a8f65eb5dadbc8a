package room

import (
	"context"
	"io"
)

// smallest is what a buffer begins with.
const smallest = 4 << 10

// Buffer collects bytes. It takes the room for them before it reads them, and never gives it back: whoever has the bytes
// does.
type Buffer struct {
	Hold *Hold
	Ctx  context.Context // of who waits for room
	Most int             // bytes

	data []byte
}

// Bytes are those that came. The hold has room for their capacity.
func (b *Buffer) Bytes() []byte { return b.data }

// grow makes place for at least one byte more, and for n if they are to be there at once.
func (b *Buffer) grow(n int) error {
	size := min(max(smallest, 2*cap(b.data), len(b.data)+n), b.Most)
	if size < len(b.data)+n {
		return io.ErrShortBuffer
	}
	if err := b.Hold.Take(b.Ctx, int64(size-cap(b.data))); err != nil {
		return err
	}
	data := make([]byte, len(b.data), size)
	copy(data, b.data)
	b.data = data
	return nil
}

// Write is io.Writer's.
func (b *Buffer) Write(p []byte) (int, error) {
	if cap(b.data)-len(b.data) < len(p) {
		if err := b.grow(len(p)); err != nil {
			return 0, err
		}
	}
	b.data = append(b.data, p...)
	b.Hold.Moved(len(p))
	return len(p), nil
}

// ReadFrom reads to the end of r. If r has more than Most bytes, the error is io.ErrShortBuffer.
func (b *Buffer) ReadFrom(r io.Reader) (n int64, err error) {
	for {
		if len(b.data) == cap(b.data) && len(b.data) < b.Most {
			if err := b.grow(1); err != nil {
				return n, err
			}
		}
		var one [1]byte
		to := b.data[len(b.data):cap(b.data)]
		if len(to) == 0 {
			to = one[:]
		}
		m, err := r.Read(to)
		if m > 0 && len(b.data) == b.Most {
			return n, io.ErrShortBuffer
		}
		b.data = b.data[:len(b.data)+m]
		n += int64(m)
		b.Hold.Moved(m)
		switch {
		case err == io.EOF:
			return n, nil
		case err != nil:
			return n, err
		}
	}
}

// ReadAll is io.ReadAll into a buffer that is empty.
func (b *Buffer) ReadAll(r io.Reader) ([]byte, error) {
	_, err := b.ReadFrom(r)
	return b.data, err
}
