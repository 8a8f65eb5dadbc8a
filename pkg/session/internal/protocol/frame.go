package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Clients and server exchange frames: one byte of kind, four of length, the
// payload. The kinds are letters, upper case from the client.
type Kind byte

const (
	KindHello  Kind = 'H' // JSON of a Request; once, and first
	KindInput  Kind = 'I' // bytes typed
	KindResize Kind = 'R' // columns and rows, 16 bits each
	KindSwitch Kind = 'W' // one byte: 'n', 'p', 'c' or a digit
	KindDetach Kind = 'D' // leave the window; the connection may attach again with Hello
	KindRedraw Kind = 'L' // the screen was lost: draw it

	KindScreen Kind = 's' // bytes that draw the screen afresh
	KindOutput Kind = 'o' // bytes that go on from there
	KindTraces Kind = 't' // bytes that take back, of what was shown, what a client can't know, should the server be lost
	KindWindow Kind = 'w' // attached to this window: JSON of a WindowInfo
	KindEnded  Kind = 'x' // the window has ended: exit code, 32 bits
	KindPutOut Kind = 'v' // the client is put out: the reason
	KindError  Kind = 'e' // the request failed: the reason
	KindData   Kind = 'd' // part of the answer to a request
	KindDone   Kind = 'k' // the answer is complete
)

const (
	HeaderSize = 5
	// MaxFromClient bounds a client's frames: nothing but Hello comes near.
	MaxFromClient = 64 << 10
	// MaxFromServer bounds the server's. Larger screens take several.
	MaxFromServer = 1 << 20
	// MaxInput is the longest piece of input in one frame.
	MaxInput = 4 << 10
)

// ErrFrame is of what is no frame.
var ErrFrame = errors.New("not a frame of this protocol")

// AppendHeader appends what a frame of n bytes begins with.
func AppendHeader(b []byte, k Kind, n int) []byte {
	return binary.BigEndian.AppendUint32(append(b, byte(k)), uint32(n))
}

// AppendFrame appends a frame.
func AppendFrame(b []byte, k Kind, payload []byte) []byte {
	return append(AppendHeader(b, k, len(payload)), payload...)
}

// ParseHeader checks what can be checked before the payload is there.
func ParseHeader(h [HeaderSize]byte, fromServer bool) (Kind, int, error) {
	k, n := Kind(h[0]), binary.BigEndian.Uint32(h[1:])
	low, high := uint32(0), uint32(MaxFromServer)
	switch k {
	case KindHello:
		low, high = 2, MaxFromClient
	case KindInput:
		low, high = 1, MaxFromClient
	case KindResize, KindEnded:
		low, high = 4, 4
	case KindSwitch:
		low, high = 1, 1
	case KindDetach, KindRedraw, KindDone:
		high = 0
	case KindWindow, KindTraces, KindPutOut, KindError:
		high = MaxFromClient
	case KindScreen, KindOutput, KindData:
	default:
		return 0, 0, ErrFrame
	}
	if (k >= 'a') != fromServer || n < low || n > high {
		return 0, 0, ErrFrame
	}
	return k, int(n), nil
}

// FrameReader reads whole frames. The payload is valid until the next call.
type FrameReader struct {
	R          io.Reader
	FromServer bool
	buf        []byte // its capacity is kept
	have       []byte // of buf, what was read and not yet returned
}

// Next returns a frame, io.EOF at the end between two frames, or an error that
// the connection can't be used after.
func (f *FrameReader) Next() (Kind, []byte, error) {
	for {
		if len(f.have) >= HeaderSize {
			k, n, err := ParseHeader([HeaderSize]byte(f.have), f.FromServer)
			if err != nil {
				return 0, nil, err
			}
			if len(f.have) >= HeaderSize+n {
				payload := f.have[HeaderSize : HeaderSize+n : HeaderSize+n]
				f.have = f.have[HeaderSize+n:]
				return k, payload, nil
			}
			f.room(HeaderSize + n)
		} else {
			f.room(HeaderSize)
		}
		n, err := f.R.Read(f.have[len(f.have):cap(f.have)])
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
func (f *FrameReader) room(n int) {
	if cap(f.have) >= n && cap(f.have) > len(f.have) {
		return
	}
	if cap(f.buf) < n {
		f.buf = make([]byte, 0, max(n, 4<<10))
	}
	f.have = append(f.buf[:0], f.have...)
}

// EncodeSize is the payload that tells a size.
func EncodeSize(cols, rows int) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(min(max(cols, 0), 0xffff)))
	return binary.BigEndian.AppendUint16(b, uint16(min(max(rows, 0), 0xffff)))
}

// DecodeSize reads the payload that tells a size.
func DecodeSize(b []byte) (cols, rows int) {
	return int(binary.BigEndian.Uint16(b)), int(binary.BigEndian.Uint16(b[2:]))
}

// EncodeCode is the payload that tells how a program ended.
func EncodeCode(code int) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(int32(code)))
}

// DecodeCode reads the payload that tells how a program ended.
func DecodeCode(b []byte) int { return int(int32(binary.BigEndian.Uint32(b))) }

// WriteFrame is for requests and other rare frames.
func WriteFrame(w io.Writer, k Kind, payload []byte) error {
	if _, err := w.Write(AppendFrame(make([]byte, 0, HeaderSize+len(payload)), k, payload)); err != nil {
		return fmt.Errorf("write to the session: %w", err)
	}
	return nil
}

// CutOff ends whatever sequence the client's terminal may be in the middle of.
const CutOff = "\x18\x1b\\"
