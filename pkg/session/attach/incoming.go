package attach

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/session/internal/protocol"
)

// incoming is the stream of frames from the server, read in pieces: what the
// terminal is to show goes there before the whole frame has come.
type incoming struct {
	header [protocol.HeaderSize]byte
	have   int // bytes of the header
	kind   protocol.Kind
	left   int    // bytes of the payload that are still to come
	small  []byte // the payload of a frame that is not for the terminal
}

// feed takes bytes of the stream. It calls show with what is for the terminal
// and handle with other frames as they are complete.
func (f *incoming) feed(b []byte, show func([]byte) error, handle func(protocol.Kind, []byte) error) error {
	for len(b) > 0 {
		if f.have < protocol.HeaderSize {
			n := copy(f.header[f.have:], b)
			f.have += n
			if b = b[n:]; f.have < protocol.HeaderSize {
				return nil
			}
			var err error
			if f.kind, f.left, err = protocol.ParseHeader(f.header, true); err != nil {
				return err
			}
			f.small = f.small[:0]
		}
		piece := b[:min(f.left, len(b))]
		b = b[len(piece):]
		f.left -= len(piece)
		shown := f.kind == protocol.KindScreen || f.kind == protocol.KindOutput
		if shown {
			if err := show(piece); err != nil {
				return err
			}
		} else {
			f.small = append(f.small, piece...)
		}
		if f.left > 0 {
			return nil
		}
		f.have = 0
		if !shown {
			if err := handle(f.kind, f.small); err != nil {
				return err
			}
		}
	}
	return nil
}

// FromServer handles what the server has sent. io.EOF is its end.
func (a *attachment) fromServer() error {
	n, err := unix.Read(a.sock, a.buf)
	switch {
	case err == unix.EINTR || err == unix.EAGAIN:
		return nil
	case err != nil || n == 0:
		return io.EOF
	}
	return a.frames.feed(a.buf[:n], a.show, a.handle)
}

func (a *attachment) show(b []byte) error {
	if a.helping || a.idle || len(b) == 0 {
		return nil // the screen comes afresh afterwards
	}
	a.dirty = true
	return a.write(b)
}

// handle takes a frame that is not for the terminal.
func (a *attachment) handle(k protocol.Kind, payload []byte) error {
	switch k {
	case protocol.KindTraces:
		a.traces = bytes.Clone(payload)
	case protocol.KindWindow:
		var w protocol.WindowInfo
		if err := json.Unmarshal(payload, &w); err != nil {
			return protocol.ErrFrame
		}
		a.result.Window = fmt.Sprint(w.ID)
		a.helping = false
	case protocol.KindEnded:
		a.dirty, a.result.Code = false, protocol.DecodeCode(payload)
		if !a.o.Local {
			return errFinished
		}
		a.o.Request.Window = ""
		if !a.idle {
			a.hello() // to a window that is left
		}
	case protocol.KindDone: // we have left
		if !a.leaving.IsZero() {
			a.dirty = false
			return a.left()
		}
	case protocol.KindPutOut, protocol.KindError:
		if a.o.Local && a.result.Window != "" { // no window is left
			return errFinished
		}
		return refusal(payload)
	default:
		return protocol.ErrFrame
	}
	return nil
}

// left says how to come back.
func (a *attachment) left() error {
	a.leaving = time.Time{}
	a.result.Detached = true
	if a.dirty {
		a.reset()
	}
	if !a.o.Local {
		return errFinished
	}
	a.idle = true
	a.o.Request.Window = a.result.Window
	return a.write([]byte("\r\n[detached; the session goes on. " + a.o.Again + "\r\n"))
}
