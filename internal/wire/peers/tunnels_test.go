package peers

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
)

// brokerOf is the broker's end of a pair, whose guard's end receives.
func brokerOf(t *testing.T) (*Tunnels, *wire.Channel) {
	t.Helper()
	guards, brokers, err := wire.LentPair()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := wire.OpenPair(brokers)
	if err != nil {
		t.Fatal(err)
	}
	tunnels, err := OpenTunnels(guards)
	if err != nil {
		t.Fatal(err)
	}
	received := make(chan error, 1)
	go func() { received <- tunnels.Receive() }()
	t.Cleanup(func() { conn.Close(); <-received })
	return tunnels, wire.Open(conn, wire.MaxText)
}

var tunnelTo = netip.MustParseAddrPort("192.0.2.1:443")

// connection is one of TCP, as a file.
func connection(t *testing.T) *os.File {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept() // else it is reset with the listener
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestTunnels(t *testing.T) {
	tunnels, broker := brokerOf(t)
	file := connection(t)
	served := make(chan struct{})
	defer func() { <-served }()
	go func() {
		defer close(served)
		for _, f := range []*os.File{file, nil} {
			m, _, err := broker.Receive()
			if err != nil || m.Op != wire.OpTunnel || m.Name != "a.example" || len(m.Addrs) != 1 || netip.AddrPortFrom(m.Addrs[0], m.Port) != tunnelTo {
				t.Errorf("asked %+v, %v", m, err)
			}
			if err := broker.Send(wire.Message{Op: wire.OpTunnel, ID: m.ID, Err: f == nil, Text: "refused"}, f); err != nil {
				t.Error(err)
			}
		}
	}()
	conn, err := tunnels.Open(t.Context(), "a.example", tunnelTo)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if _, err = tunnels.Open(t.Context(), "a.example", tunnelTo); !errors.Is(err, ErrTunnel("refused")) {
		t.Errorf("refused: %v", err)
	}
}

// TestTunnelsHostile: of a broker that was taken over, answers that nobody waits for, files that are no connections, and
// no answer at all do no harm.
func TestTunnelsHostile(t *testing.T) {
	tunnels, broker := brokerOf(t)
	file := connection(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := tunnels.Open(ctx, "a.example", tunnelTo)
		done <- err
	}()
	m, _, err := broker.Receive()
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := broker.Send(wire.Message{Op: wire.OpTunnel, ID: m.ID + 1000}, file); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("without an answer: %v", err)
	}
	served := make(chan struct{})
	defer func() { <-served }()
	go func() { // what is late goes to nobody, and a pipe is no connection
		defer close(served)
		_ = broker.Send(wire.Message{Op: wire.OpTunnel, ID: m.ID}, file)
		m, _, _ := broker.Receive()
		_ = broker.Send(wire.Message{Op: wire.OpTunnel, ID: m.ID}, r)
	}()
	bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if conn, err := tunnels.Open(bounded, "a.example", tunnelTo); conn != nil || !errors.Is(err, ErrTunnel("the broker gave no connection")) {
		t.Errorf("a pipe: %v, %v", conn, err)
	}
	if left := len(tunnels.waiting); left != 0 {
		t.Errorf("%d wait still", left)
	}
}
