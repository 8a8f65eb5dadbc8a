package wire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// TunnelPair returns both ends of the way on which the guard asks the broker for connections by the upstream proxy. The
// keeper has both, and lends them, as those of HandOverPair.
func TunnelPair() (guards, brokers *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "tunnels"), os.NewFile(uintptr(fds[1]), "tunnels"), nil
}

// Tunnels is the guard's end. It is safe for concurrent use.
type Tunnels struct {
	channel *Channel

	mu      sync.Mutex
	last    uint32
	waiting map[uint32]chan tunnelled
}

type tunnelled struct {
	conn *net.TCPConn
	why  string
}

// OpenTunnels takes over f, which was inherited. What an earlier guard asked for is not answered to this one: it counts
// from somewhere else.
func OpenTunnels(f *os.File) (*Tunnels, error) {
	conn, err := OpenPair(f)
	if err != nil {
		return nil, err
	}
	return &Tunnels{channel: Open(conn, MaxText), last: rand.Uint32(), waiting: map[uint32]chan tunnelled{}}, nil
}

// ErrTunnel is what the broker says instead of a connection.
type ErrTunnel string

func (e ErrTunnel) Error() string { return string(e) }

// Open asks for a connection to a name at an address that is leased to it, and waits as long as ctx says.
func (t *Tunnels) Open(ctx context.Context, name string, to netip.AddrPort) (*net.TCPConn, error) {
	answer := make(chan tunnelled, 1)
	t.mu.Lock()
	t.last++
	id := t.last
	t.waiting[id] = answer
	t.mu.Unlock()
	err := t.channel.Send(Message{Op: OpTunnel, ID: id, Name: name, Addrs: []netip.Addr{to.Addr()}, Port: to.Port()}, nil)
	if err == nil {
		select {
		case a := <-answer:
			if a.conn == nil {
				return nil, ErrTunnel(PlainText(a.why))
			}
			return a.conn, nil
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if !t.forget(id) { // it has just come
		if a := <-answer; a.conn != nil {
			a.conn.Close()
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = os.ErrDeadlineExceeded
	}
	return nil, err
}

// forget says whether nobody has answered.
func (t *Tunnels) forget(id uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, waits := t.waiting[id]
	delete(t.waiting, id)
	return waits
}

// Receive hands the broker's answers to those who wait, until there is no keeper any more. The broker may have been taken
// over: what is no answer to a question is closed.
func (t *Tunnels) Receive() error {
	for {
		m, file, err := t.channel.Receive()
		if errors.Is(err, ErrMalformed) {
			continue
		}
		if err != nil {
			return fmt.Errorf("receive connections by the proxy: %w", err)
		}
		a := tunnelled{why: m.Text}
		if file != nil {
			a.conn = tcpOf(file)
			file.Close()
		}
		t.mu.Lock()
		answer, waits := t.waiting[m.ID]
		delete(t.waiting, m.ID)
		t.mu.Unlock()
		switch {
		case waits:
			if a.conn == nil && a.why == "" {
				a.why = "the broker gave no connection"
			}
			answer <- a
		case a.conn != nil:
			a.conn.Close()
		}
	}
}
