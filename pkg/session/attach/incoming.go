package attach

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

// socket is the connection to the server. It is read once each time that it is ready, so
// that a server which has much to say keeps no key waiting.
type socket struct {
	fd    int
	ready bool
}

func (s *socket) Read(b []byte) (int, error) {
	if !s.ready {
		return 0, unix.EAGAIN
	}
	s.ready = false
	n, err := unix.Read(s.fd, b)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err
}

// fromServer handles what the server has sent. io.EOF is its end.
func (a *attachment) fromServer() error {
	for a.from.ready = true; ; {
		k, payload, err := a.frames.Next()
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
			return nil
		case errors.Is(err, frame.ErrMalformed):
			return err
		case err != nil:
			return io.EOF
		}
		if k == frame.Screen || k == frame.Output {
			err = a.show(payload)
		} else {
			err = a.handle(k, payload)
		}
		if err != nil {
			return err
		}
	}
}

func (a *attachment) show(b []byte) error {
	if a.helping || a.idle || len(b) == 0 {
		return nil // the screen comes afresh afterwards
	}
	a.dirty = true
	return a.write(b)
}

// handle takes a frame that is not for the terminal.
func (a *attachment) handle(k frame.Kind, payload []byte) error {
	switch k {
	case frame.Traces:
		a.traces = bytes.Clone(payload)
	case frame.Window:
		var w protocol.WindowInfo
		if err := json.Unmarshal(payload, &w); err != nil {
			return frame.ErrMalformed
		}
		a.result.Window = fmt.Sprint(w.ID)
		a.helping = false
	case frame.Ended:
		a.dirty, a.result.Code = false, int(int32(frame.NumberOf(payload)))
		if !a.o.Local {
			return errFinished
		}
		a.o.Request.Window = ""
		if !a.idle {
			a.hello() // to a window that is left
		}
	case frame.Done: // we have left
		if !a.leaving.IsZero() {
			a.dirty = false
			return a.left()
		}
	case frame.Error:
		if a.o.Local && a.result.Window != "" { // no window is left
			return errFinished
		}
		return refusal(payload)
	default:
		return frame.ErrMalformed
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
