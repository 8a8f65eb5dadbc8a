// Package wire is what the processes of this binary say to each other: bounded messages over pairs of sockets, and
// files in memory.
package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Channel is one end of a SOCK_SEQPACKET pair between the keeper and a process of its own: a packet is a message,
// perhaps with a file beside it. Send is safe for concurrent use; receive is for one goroutine.
type Channel struct {
	conn    *net.UnixConn
	buf     []byte
	maxText int
}

// Open speaks over conn, in messages that have no more than maxText bytes of text.
func Open(conn *net.UnixConn, maxText int) *Channel {
	return &Channel{conn: conn, buf: make([]byte, textless+maxText+1), maxText: maxText}
}

// Pair returns the keeper's end, and the other as a file to inherit.
func Pair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "theirs")
	ours, err := OpenPair(os.NewFile(uintptr(fds[0]), "keeper"))
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// OpenPair takes over f, which was inherited.
func OpenPair(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("open channel: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("open channel: not a unix socket")
	}
	return u, nil
}

// Send gives up after a while: a peer that has stopped reading is a peer that
// is restarted, and must not hold the sender for ever.
func (c *Channel) Send(m Message, file *os.File) error {
	b, err := m.encode(c.maxText)
	if err != nil {
		return err
	}
	var oob []byte
	if file != nil {
		oob = unix.UnixRights(int(file.Fd()))
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	_, _, err = c.conn.WriteMsgUnix(b, oob, nil)
	return err
}

const sendTimeout = 2 * time.Second

// Deliver sends m until the peer takes it, or the channel ends: a peer that holds a
// place for an answer (AsksAtOnce) would hold it for good if that were lost. Whoever uses it
// has to find a peer that takes nothing any more, and close the channel.
func (c *Channel) Deliver(m Message) error {
	for {
		if err := c.Send(m, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

// Receive returns the next message, and the file that came with it, if any.
func (c *Channel) Receive() (m Message, file *os.File, err error) {
	var oob [64]byte
	n, oobn, _, _, err := c.conn.ReadMsgUnix(c.buf, oob[:])
	if err != nil {
		return m, nil, err
	}
	if n == 0 && oobn == 0 {
		return m, nil, net.ErrClosed // SOCK_SEQPACKET: the peer is gone
	}
	file = ReceivedFile(oob[:oobn])
	if m, err = decode(c.buf[:n], c.maxText); err != nil {
		if file != nil {
			file.Close()
		}
		return m, nil, ErrMalformed
	}
	return m, file, nil
}

// ErrMalformed is a packet that is not a message. The channel is still usable.
var ErrMalformed = errors.New("malformed message")

// ReceivedFile takes the first descriptor out of a control message and closes any other: a peer can't fill the table.
func ReceivedFile(oob []byte) *os.File {
	if len(oob) == 0 {
		return nil
	}
	cmsgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var file *os.File
	for _, c := range cmsgs {
		fds, err := unix.ParseUnixRights(&c)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			if file != nil {
				unix.Close(fd)
				continue
			}
			file = os.NewFile(uintptr(fd), "received")
		}
	}
	return file
}

// Close closes this end.
func (c *Channel) Close() error { return c.conn.Close() }

// Memfd holds v as JSON, sealed against change, at its start.
func Memfd(name string, v any) (*os.File, error) {
	return MemfdOf(name, func(w io.Writer) error { return json.NewEncoder(w).Encode(v) })
}

// MemfdOf holds what fill writes.
func MemfdOf(name string, fill func(io.Writer) error) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	err = fill(f)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("memfd: %w", err)
	}
	return f, nil
}

// maxMemfd bounds what is read of one, in bytes of JSON: the policy's files may be long.
const maxMemfd = 256 << 20

// ReadMemfd reads what Memfd holds into v.
func ReadMemfd(f io.Reader, v any) error {
	return json.NewDecoder(io.LimitReader(f, maxMemfd)).Decode(v)
}

// Inherit opens a descriptor that the process was started with, and closes it.
func Inherit[T any](fd uintptr, open func(*os.File) (T, error)) (T, error) {
	f := os.NewFile(fd, "inherited")
	defer f.Close()
	v, err := open(f)
	if err != nil {
		return v, fmt.Errorf("inherit socket %d: %w", fd, err)
	}
	return v, nil
}
