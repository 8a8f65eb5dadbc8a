package attach

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

// connect asks the server for the window.
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

// disconnected prepares for a server to come back. One that ends each connection at once
// is not asked again without a pause.
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

// reconnect tries once.
func (a *attachment) reconnect() error {
	a.lost = time.Time{}
	switch err := a.connect(); {
	case err == nil:
		return nil
	case time.Since(a.lostFirst) > lostTime:
		return ErrLost
	}
	a.lost, a.pause = time.Now(), min(2*a.pause, mostPause)
	return nil
}

// Raw returns a terminal's modes with all processing off (termios(3),
// cfmakeraw): what is typed arrives as it is, and at once.
func Raw(t unix.Termios) unix.Termios {
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return t
}
