package peers

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/wire"
)

// Handed is a connection of the agent's that the guard hands over to the broker: from then on, it is the broker's.
type Handed struct {
	Conn *net.TCPConn
	Name string         // that the gate has read
	To   netip.AddrPort // where it was going to
	Read []byte         // what was read from it; no more than MaxRead
}

// MaxRead is what a gate has read of a connection at most: a ClientHello, and a buffer's worth behind it.
const MaxRead = 96 << 10

// A packet has a version, the length of the name, the address in 16 bytes, the port, then the name, and what was read.
const (
	handedVersion = 1
	handedHead    = 1 + 1 + 16 + 2
	maxHanded     = handedHead + wire.MaxName + MaxRead
)

func (h *Handed) encode() ([]byte, error) {
	if len(h.Name) > wire.MaxName || len(h.Read) > MaxRead || !h.To.IsValid() {
		return nil, errors.New("no such connection can be handed over")
	}
	b := make([]byte, 0, handedHead+len(h.Name)+len(h.Read))
	b = append(b, handedVersion, uint8(len(h.Name)))
	as16 := h.To.Addr().As16()
	b = append(b, as16[:]...)
	b = binary.BigEndian.AppendUint16(b, h.To.Port())
	b = append(b, h.Name...)
	return append(b, h.Read...), nil
}

func (h *Handed) decode(b []byte) error {
	if len(b) < handedHead || b[0] != handedVersion {
		return wire.ErrMalformed
	}
	name, rest := int(b[1]), b[handedHead:]
	if name > wire.MaxName || name > len(rest) || len(rest)-name > MaxRead {
		return wire.ErrMalformed
	}
	h.To = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[2:18])).Unmap(), binary.BigEndian.Uint16(b[18:20]))
	h.Name, h.Read = string(rest[:name]), append([]byte(nil), rest[name:]...)
	return nil
}

// HandOver is the guard's end. It is safe for concurrent use.
type HandOver struct {
	conn *net.UnixConn
	turn chan struct{}
}

// OpenHandOver takes over f, which was inherited.
func OpenHandOver(f *os.File) (*HandOver, error) {
	conn, err := wire.OpenPair(f)
	return &HandOver{conn: conn, turn: make(chan struct{}, 1)}, err
}

// Send hands h over. It waits for room as long as ctx says. Without an error, the connection is the broker's: who has sent
// it closes its own descriptor, and does nothing else with it.
func (o *HandOver) Send(ctx context.Context, h Handed) error {
	b, err := h.encode()
	if err != nil {
		return err
	}
	raw, err := h.Conn.SyscallConn()
	if err != nil {
		return err
	}
	select {
	case o.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-o.turn }()
	if err := o.conn.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(expired)
		_ = o.conn.SetWriteDeadline(time.Unix(1, 0))
	})
	var sent error
	err = raw.Control(func(fd uintptr) {
		_, _, sent = o.conn.WriteMsgUnix(b, unix.UnixRights(int(fd)), nil)
	})
	if !stop() {
		<-expired // before the next one sets its own
	}
	return errors.Join(err, sent)
}

// TakeOver is the broker's end. One goroutine uses it.
type TakeOver struct {
	conn *net.UnixConn
	buf  []byte
}

// OpenTakeOver takes over f, which was inherited.
func OpenTakeOver(f *os.File) (*TakeOver, error) {
	conn, err := wire.OpenPair(f)
	return &TakeOver{conn: conn}, err
}

// Close ends Next.
func (t *TakeOver) Close() error { return t.conn.Close() }

// Next waits for the next connection. Who sends it may have been taken over: what is not one is wire.ErrMalformed, and the
// next one may be good. So it is behind io.EOF, as long as there is a keeper.
func (t *TakeOver) Next() (h Handed, err error) {
	if t.buf == nil {
		t.buf = make([]byte, maxHanded+1) // a longer packet is cut off, and too long still
	}
	var oob [64]byte
	n, oobn, _, _, err := t.conn.ReadMsgUnix(t.buf, oob[:])
	file := wire.ReceivedFile(oob[:oobn])
	switch {
	case file == nil && err == nil:
		return h, wire.ErrMalformed
	case err != nil: // io.EOF if there is no keeper any more, or for a packet of no bytes
		if file != nil {
			file.Close()
		}
		return h, err
	}
	defer file.Close()
	if err := h.decode(t.buf[:n]); err != nil {
		return Handed{}, err
	}
	if h.Conn = tcpOf(file); h.Conn == nil {
		return Handed{}, wire.ErrMalformed
	}
	return h, nil
}

// tcpOf returns the connection that f is, or nil. MPTCP, of which net makes the same, is another protocol.
func tcpOf(f *os.File) *net.TCPConn {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	proto := 0
	err = errors.Join(raw.Control(func(fd uintptr) { proto, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PROTOCOL) }), err)
	if err != nil || proto != unix.IPPROTO_TCP {
		return nil
	}
	conn, err := net.FileConn(f)
	if err != nil {
		return nil
	}
	c, ok := conn.(*net.TCPConn)
	if !ok || c.RemoteAddr() == nil {
		conn.Close()
		return nil
	}
	return c
}
