// Package frame is how a session's server and its clients part what they send each other.
package frame

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// Kind is what a frame is for: one byte of kind, four of length, the payload. The client's are in upper case.
type Kind byte

const (
	Hello  Kind = 'H' // JSON of a protocol.Request; once, and first
	Input  Kind = 'I' // bytes typed
	Resize Kind = 'R' // columns and rows, 16 bits each; the size that it has already: the screen was lost, draw it
	Switch Kind = 'W' // one byte: 'n', 'p', 'c', 't' or a digit; or 'x': end this one
	Seen   Kind = 'S' // the notice was seen: take it away
	Ask    Kind = 'A' // one byte: what is wanted, answered by frames of Answer
	Detach Kind = 'D' // leave the window; the connection may attach again with Hello

	Screen Kind = 's' // bytes that draw the screen afresh
	Output Kind = 'o' // bytes that go on from there; or part of the answer to a request
	Traces Kind = 't' // bytes that take back, of what was shown, what a client can't know, should the server be lost
	Window Kind = 'w' // attached to this window: JSON of a protocol.WindowInfo
	Ended  Kind = 'x' // the window has ended: exit code, 32 bits
	Error  Kind = 'e' // the request failed: the reason
	Done   Kind = 'k' // the answer is complete
	Answer Kind = 'a' // part of what Ask wanted; an empty one is its end
)

const (
	// What may be asked for while a window is shown.
	AskWindows = 'l' // JSON of a protocol.Info
	AskHistory = 'h' // what the window has shown, as text

	headerSize = 5
	maxPayload = 64 << 10
)

// bounds are the shortest and the longest payload of each kind.
var bounds = map[Kind]struct{ least, most uint32 }{
	Hello: {2, maxPayload}, Input: {1, maxPayload}, Resize: {4, 4}, Switch: {1, 1}, Seen: {}, Ask: {1, 1}, Detach: {},
	Screen: {0, maxPayload}, Output: {0, maxPayload}, Traces: {0, maxPayload}, Window: {0, maxPayload}, Ended: {4, 4},
	Error: {0, maxPayload}, Done: {}, Answer: {0, maxPayload},
}

// ErrMalformed is of what is no frame.
var ErrMalformed = errors.New("not a frame of this protocol")

// Append appends a frame; several, where the payload is longer than one may be.
func Append(b []byte, k Kind, payload []byte) []byte {
	for {
		piece := payload[:min(len(payload), maxPayload)]
		b = append(header(b, k, uint32(len(piece))), piece...)
		if payload = payload[len(piece):]; len(payload) == 0 {
			return b
		}
	}
}

func header(b []byte, k Kind, n uint32) []byte {
	return binary.BigEndian.AppendUint32(append(b, byte(k)), n)
}

// Reader reads whole frames.
type Reader struct {
	R          io.Reader
	FromServer bool
	in         *bufio.Reader
	taken      int // of in: the frame that was returned last
}

// Next returns a frame, whose payload is valid until the next call; io.EOF at the end between two frames; an error of
// R's, after which it may be called again; or one that the connection can't be used after.
func (f *Reader) Next() (Kind, []byte, error) {
	if f.in == nil {
		f.in = bufio.NewReaderSize(f.R, headerSize+maxPayload)
	}
	_, _ = f.in.Discard(f.taken)
	f.taken = 0
	head, err := f.in.Peek(headerSize)
	if err == nil {
		k, n := Kind(head[0]), binary.BigEndian.Uint32(head[1:])
		bound, known := bounds[k]
		if !known || (k >= 'a') != f.FromServer || n < bound.least || n > bound.most {
			return 0, nil, ErrMalformed
		}
		var all []byte
		if all, err = f.in.Peek(headerSize + int(n)); err == nil {
			f.taken = len(all)
			return k, all[headerSize:len(all):len(all)], nil
		}
	}
	if err == io.EOF && f.in.Buffered() > 0 {
		err = io.ErrUnexpectedEOF
	}
	return 0, nil, err
}

// Number is the payload that tells a number.
func Number(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// NumberOf reads the payload that tells a number.
func NumberOf(b []byte) uint32 { return binary.BigEndian.Uint32(b) }

// Size is the payload that tells a terminal's size.
func Size(cols, rows int) []byte { return Number(uint32(cols)<<16 | uint32(rows)&0xffff) }
