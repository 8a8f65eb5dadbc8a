package peers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/agent-init/agent-init/internal/wire"
)

// Tunnels is the guard's end. It is safe for concurrent use.
type Tunnels struct {
	channel *wire.Channel

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
	conn, err := wire.OpenPair(f)
	if err != nil {
		return nil, err
	}
	return &Tunnels{channel: wire.Open(conn, wire.MaxText), last: rand.Uint32(), waiting: map[uint32]chan tunnelled{}}, nil
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
	err := t.channel.Send(wire.Message{Op: wire.OpTunnel, ID: id, Name: name, Addrs: []netip.Addr{to.Addr()}, Port: to.Port()}, nil)
	if err == nil {
		select {
		case a := <-answer:
			if a.conn == nil {
				return nil, ErrTunnel(wire.PlainText(a.why))
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
		if errors.Is(err, wire.ErrMalformed) {
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
