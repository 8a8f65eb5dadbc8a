package attach

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

func (a *attachment) connect() error {
	conn, err := a.o.Dial()
	if err != nil {
		return err
	}
	a.closeConn()
	a.conn, a.sock = conn, int(conn.Fd())
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
	if r.Key = ""; a.o.Prefix != 0 && a.o.Requests.List != nil {
		r.Key = a.o.Prefix.String() + " a"
	}
	a.leaving, a.idle = time.Time{}, false
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

// disconnected prepares for a server to come back. Between tries there is a pause.
func (a *attachment) disconnected() error {
	if a.o.Local || !a.leaving.IsZero() || !a.ending.IsZero() {
		return ErrLost
	}
	a.o.Request.Window = a.result.Window
	a.closeConn()
	if time.Since(a.connected) >= steadyAfter || a.lostFirst.IsZero() {
		a.lostFirst, a.pause = time.Now(), 0
	}
	a.pauseMore()
	return nil
}

func (a *attachment) pauseMore() {
	a.pause = min(max(2*a.pause, lostPause), mostPause)
	a.retry = time.Now().Add(a.pause)
}

func (a *attachment) reconnect() error {
	a.retry = time.Time{}
	if a.connect() == nil {
		return nil
	}
	if time.Since(a.lostFirst) > lostTime {
		return ErrLost
	}
	a.pauseMore()
	return nil
}

// Raw returns a terminal's modes with all processing off (termios(3), cfmakeraw).
func Raw(t unix.Termios) unix.Termios {
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return t
}

// socket is the connection to the server. It is read once each time, so that much output keeps no key waiting.
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
	switch {
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
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
		if a.over != nil || a.idle || len(payload) == 0 {
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
		a.result.Window, a.name = fmt.Sprint(w.ID), w.Name
	case frame.Answer:
		return a.answered(payload)
	case frame.Ended:
		a.dirty, a.result.Code = a.over != nil, int(int32(frame.NumberOf(payload)))
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
	a.reset()
	if !a.o.Local {
		return errFinished
	}
	a.idle = true
	a.o.Request.Window = a.result.Window
	return a.write([]byte("\r\n[detached; the session goes on. " + a.o.Again + "\r\n"))
}

// wait does what comes from the terminal and from the server, or nothing when the time has come for something.
func (a *attachment) wait() error {
	on := [...]unix.PollFd{{Fd: int32(a.in), Events: unix.POLLIN}, {Fd: int32(a.sock), Events: unix.POLLIN}, {Fd: int32(a.woken.Fd()), Events: unix.POLLIN}}
	terminal, server, woken := &on[0], &on[1], &on[2]
	if len(a.typed) > 0 {
		server.Events |= unix.POLLOUT
	}
	timeout := -1
	if first := a.deadline(); !first.IsZero() {
		timeout = max(0, int(time.Until(first)/time.Millisecond)+1)
	}
	if _, err := unix.Poll(on[:], timeout); err != nil {
		if err == unix.EINTR {
			return nil
		}
		return fmt.Errorf("poll: %w", err)
	}
	if woken.Revents != 0 {
		_, _ = a.woken.Read(make([]byte, 64))
	}
	if server.Revents&unix.POLLOUT != 0 {
		a.flush()
	}
	if server.Revents&^unix.POLLOUT != 0 {
		if err := a.fromServer(); err != nil {
			return err
		}
	}
	if terminal.Revents != 0 {
		return a.fromTerminal()
	}
	return nil
}

// deadline is when something has to be done; zero: never.
func (a *attachment) deadline() (first time.Time) {
	times := [...]time.Time{a.escape, a.settling, a.leaving, a.ending, a.retry, {}}
	if a.over != nil && !a.o.Request.Plain {
		times[len(times)-1] = a.over.looking
	}
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

func past(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

// ErrRefused is what errors of requests that the server answered with a refusal unwrap to.
var ErrRefused = errors.New("refused")

// Dial connects to the server that listens at path. Errors unwrap to those of connect(2).
func Dial(path string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Call sends a request other than VerbAttach and writes the answer to to.
func Call(conn io.ReadWriter, r protocol.Request, to io.Writer) error {
	_, wrong := conn.Write(frame.Append(nil, frame.Hello, r.Encode())) // a server that is full may have answered already
	frames := &frame.Reader{R: conn, FromServer: true}
	for {
		k, payload, err := frames.Next()
		if err != nil {
			return errors.Join(wrong, fmt.Errorf("read from the session: %w", err))
		}
		switch k {
		case frame.Output:
			if _, err := to.Write(payload); err != nil {
				return err
			}
		case frame.Done:
			return nil
		case frame.Error:
			return refusal(payload)
		default:
			return frame.ErrMalformed
		}
	}
}

// refusal is the error for a reason that the server gave. What a terminal could act on is taken out.
func refusal(reason []byte) error {
	return fmt.Errorf("%w: %s", ErrRefused, text.Clean(string(reason)))
}

// wake ends the wait: there is something else to do. It may be called from elsewhere.
func (a *attachment) wake() { _, _ = a.waker.Write([]byte{0}) }
