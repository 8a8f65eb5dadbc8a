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

func (a *attachment) connect() error {
	conn, err := a.o.Dial()
	if err != nil {
		return err
	}
	a.closeConn()
	a.conn, a.sock, a.asked = conn, int(conn.Fd()), 0
	if err := unix.SetNonblock(a.sock, true); err != nil {
		return err
	}
	a.from = &socket{fd: a.sock}
	a.frames, a.typed = frame.Reader{R: a.from, FromServer: true}, nil
	a.connected = time.Now()
	a.hello()
	return nil
}

func (a *attachment) closeConn() {
	if a.conn != nil {
		a.conn.Close()
		a.conn, a.sock = nil, -1
	}
}

func (a *attachment) hello() {
	r := a.o.Request
	r.Verb, r.TTY = protocol.VerbAttach, protocol.TTYOf(a.in)
	a.cols, a.rows = a.size()
	r.Cols, r.Rows = a.cols, a.rows
	a.leaving, a.helping, a.idle = time.Time{}, false, false
	a.send(frame.Hello, r.Encode())
}

// size asks the terminal. An engine may give it one a little after the start.
func (a *attachment) size() (cols, rows int) {
	for deadline := time.Now().Add(sizeTime); ; time.Sleep(sizeTime / 20) {
		for _, fd := range []int{a.out, a.in} {
			if s, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil && s.Col > 0 && s.Row > 0 {
				return min(int(s.Col), protocol.MaxSide), min(int(s.Row), protocol.MaxSide)
			}
		}
		if time.Now().After(deadline) {
			return 0, 0
		}
	}
}

// disconnected prepares for a server to come back. One that ends each connection at once is not asked again without a
// pause.
func (a *attachment) disconnected() error {
	if a.o.Local || !a.leaving.IsZero() || !a.ending.IsZero() {
		return ErrLost
	}
	a.o.Request.Window = a.result.Window
	a.closeConn()
	a.lost = time.Now()
	if a.lost.Sub(a.connected) >= steadyAfter || a.lostFirst.IsZero() {
		a.lostFirst, a.pause = a.lost, 0
	}
	a.pause = min(max(2*a.pause, lostPause), mostPause)
	return nil
}

func (a *attachment) reconnect() error {
	a.lost = time.Time{}
	if a.connect() == nil {
		return nil
	}
	if time.Since(a.lostFirst) > lostTime {
		return ErrLost
	}
	a.lost, a.pause = time.Now(), min(2*a.pause, mostPause)
	return nil
}

// Raw returns a terminal's modes with all processing off (termios(3), cfmakeraw): what is typed arrives as it is, and
// at once.
func Raw(t unix.Termios) unix.Termios {
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return t
}

// socket is the connection to the server. It is read once each time that it is ready, so that a server which has much
// to say keeps no key waiting.
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
		if err = a.handle(k, payload); err != nil {
			return err
		}
	}
}

func (a *attachment) handle(k frame.Kind, payload []byte) error {
	switch k {
	case frame.Screen, frame.Output:
		if a.helping || a.idle || len(payload) == 0 {
			return nil // the screen comes afresh afterwards
		}
		a.dirty = true
		return a.write(payload)
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
