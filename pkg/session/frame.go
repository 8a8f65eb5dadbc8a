package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Clients and server exchange frames: one byte of kind, four of length, the
// payload. The kinds are letters, upper case from the client.
type kind byte

const (
	kindHello  kind = 'H' // JSON of a Request; once, and first
	kindInput  kind = 'I' // bytes typed
	kindResize kind = 'R' // columns and rows, 16 bits each
	kindSwitch kind = 'W' // one byte: 'n', 'p', 'c' or a digit
	kindDetach kind = 'D' // leave the window; the connection may attach again with Hello
	kindRedraw kind = 'L' // the screen was lost: draw it

	kindScreen kind = 's' // bytes that draw the screen afresh
	kindOutput kind = 'o' // bytes that go on from there
	kindTraces kind = 't' // bytes that take back, of what was shown, what a client can't know, should the server be lost
	kindWindow kind = 'w' // attached to this window: JSON of a WindowInfo
	kindEnded  kind = 'x' // the window has ended: exit code, 32 bits
	kindPutOut kind = 'v' // the client is put out: the reason
	kindError  kind = 'e' // the request failed: the reason
	kindData   kind = 'd' // part of the answer to a request
	kindDone   kind = 'k' // the answer is complete
)

const (
	headerSize = 5
	// maxFromClient bounds a client's frames: nothing but Hello comes near.
	maxFromClient = 64 << 10
	// maxFromServer bounds the server's. Larger screens take several.
	maxFromServer = 1 << 20
	// maxInput is the longest piece of input in one frame.
	maxInput = 4 << 10
)

var errFrame = errors.New("not a frame of this protocol")

func appendHeader(b []byte, k kind, n int) []byte {
	return binary.BigEndian.AppendUint32(append(b, byte(k)), uint32(n))
}

func appendFrame(b []byte, k kind, payload []byte) []byte {
	return append(appendHeader(b, k, len(payload)), payload...)
}

// parseHeader checks what can be checked before the payload is there.
func parseHeader(h [headerSize]byte, fromServer bool) (kind, int, error) {
	k, n := kind(h[0]), binary.BigEndian.Uint32(h[1:])
	low, high := uint32(0), uint32(maxFromServer)
	switch k {
	case kindHello:
		low, high = 2, maxFromClient
	case kindInput:
		low, high = 1, maxFromClient
	case kindResize, kindEnded:
		low, high = 4, 4
	case kindSwitch:
		low, high = 1, 1
	case kindDetach, kindRedraw, kindDone:
		high = 0
	case kindWindow, kindTraces, kindPutOut, kindError:
		high = maxFromClient
	case kindScreen, kindOutput, kindData:
	default:
		return 0, 0, errFrame
	}
	if (k >= 'a') != fromServer || n < low || n > high {
		return 0, 0, errFrame
	}
	return k, int(n), nil
}

// frameReader reads whole frames. The payload is valid until the next call.
type frameReader struct {
	r          io.Reader
	fromServer bool
	buf        []byte // its capacity is kept
	have       []byte // of buf, what was read and not yet returned
}

// next returns a frame, io.EOF at the end between two frames, or an error that
// the connection can't be used after.
func (f *frameReader) next() (kind, []byte, error) {
	for {
		if len(f.have) >= headerSize {
			k, n, err := parseHeader([headerSize]byte(f.have), f.fromServer)
			if err != nil {
				return 0, nil, err
			}
			if len(f.have) >= headerSize+n {
				payload := f.have[headerSize : headerSize+n : headerSize+n]
				f.have = f.have[headerSize+n:]
				return k, payload, nil
			}
			f.room(headerSize + n)
		} else {
			f.room(headerSize)
		}
		n, err := f.r.Read(f.have[len(f.have):cap(f.have)])
		f.have = f.have[:len(f.have)+n]
		if n > 0 {
			continue
		}
		if err == io.EOF && len(f.have) > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, nil, err
		}
	}
}

// room makes place for a frame of n bytes behind what is there.
func (f *frameReader) room(n int) {
	if cap(f.have) >= n && cap(f.have) > len(f.have) {
		return
	}
	if cap(f.buf) < n {
		f.buf = make([]byte, 0, max(n, 4<<10))
	}
	f.have = append(f.buf[:0], f.have...)
}

func encodeSize(cols, rows int) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(min(max(cols, 0), 0xffff)))
	return binary.BigEndian.AppendUint16(b, uint16(min(max(rows, 0), 0xffff)))
}

func decodeSize(b []byte) (cols, rows int) {
	return int(binary.BigEndian.Uint16(b)), int(binary.BigEndian.Uint16(b[2:]))
}

func encodeCode(code int) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(int32(code)))
}

func decodeCode(b []byte) int { return int(int32(binary.BigEndian.Uint32(b))) }

// writeFrame is for requests and other rare frames.
func writeFrame(w io.Writer, k kind, payload []byte) error {
	if _, err := w.Write(appendFrame(make([]byte, 0, headerSize+len(payload)), k, payload)); err != nil {
		return fmt.Errorf("write to the session: %w", err)
	}
	return nil
}
