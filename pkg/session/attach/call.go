package attach

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

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

// refusal is the error for a reason that the server gave. It was the server's to choose, so what a terminal could act
// on is taken out.
func refusal(reason []byte) error {
	return fmt.Errorf("%w: %s", ErrRefused, text.Clean(string(reason)))
}
