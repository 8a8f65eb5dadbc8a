package peers

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/internal/wire"
)

// handOver makes both ends. The descriptors that a keeper would hold are closed with the test.
func handOver(t *testing.T) (*HandOver, *TakeOver, *os.File) {
	t.Helper()
	guards, brokers, err := wire.LentPair()
	if err != nil {
		t.Fatal(err)
	}
	again, err := unix.Dup(int(brokers.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	keepers := os.NewFile(uintptr(again), "the keeper's")
	send, err := OpenHandOver(guards)
	if err != nil {
		t.Fatal(err)
	}
	take, err := OpenTakeOver(brokers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { send.conn.Close(); take.Close(); keepers.Close() })
	return send, take, keepers
}

// tcpPair is a connection over loopback.
func tcpPair(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// TestHandOver: the connection goes on at its taker's when the sender has closed its own descriptor.
func TestHandOver(t *testing.T) {
	send, take, _ := handOver(t)
	client, server := tcpPair(t)
	want := Handed{Conn: server, Name: "api.example", To: netip.MustParseAddrPort("192.0.2.1:443"), Read: []byte("what was read")}
	if err := send.Send(context.Background(), want); err != nil {
		t.Fatal(err)
	}
	server.Close()
	got, err := take.Next()
	if err != nil {
		t.Fatal(err)
	}
	defer got.Conn.Close()
	if got.Name != want.Name || got.To != want.To || !bytes.Equal(got.Read, want.Read) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.Conn.RemoteAddr().String() != client.LocalAddr().String() {
		t.Errorf("a connection from %v, want that of %v", got.Conn.RemoteAddr(), client.LocalAddr())
	}
	if _, err := client.Write([]byte("more")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4)
	if _, err := io.ReadFull(got.Conn, b); err != nil || string(b) != "more" {
		t.Errorf("read %q, %v", b, err)
	}
	got.Conn.Close()
	if n, err := client.Read(b); n != 0 || err != io.EOF {
		t.Errorf("the client reads %d bytes, %v; want the end", n, err)
	}
}

// TestHandOverWaits: what is sent while there is no broker waits for the next one; once there is no more room, who sends
// is told so in time, and others after it may go on.
func TestHandOverWaits(t *testing.T) {
	send, take, keepers := handOver(t)
	take.Close() // the broker has ended
	_, server := tcpPair(t)
	h := Handed{Conn: server, Name: "api.example", To: netip.MustParseAddrPort("[2001:db8::1]:8443"), Read: make([]byte, MaxRead)}
	sent := 0
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		err := send.Send(ctx, h)
		cancel()
		if err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			break
		}
		if sent++; sent > 1000 {
			t.Fatal("there is no end of room")
		}
	}
	if sent == 0 {
		t.Fatal("nothing waits for a broker")
	}
	next, err := OpenTakeOver(keepers)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	for i := range sent + 1 {
		if i == sent {
			if err := send.Send(context.Background(), h); err != nil {
				t.Fatal(err)
			}
		}
		got, err := next.Next()
		if err != nil || got.To != h.To || len(got.Read) != MaxRead {
			t.Fatalf("connection %d of %d: %+v, %v", i, sent, got.To, err)
		}
		got.Conn.Close()
	}
}

func TestHandOverBounds(t *testing.T) {
	send, _, _ := handOver(t)
	_, server := tcpPair(t)
	to := netip.MustParseAddrPort("192.0.2.1:443")
	for what, h := range map[string]Handed{
		"too much read":   {Conn: server, To: to, Read: make([]byte, MaxRead+1)},
		"too long a name": {Conn: server, To: to, Name: string(make([]byte, wire.MaxName+1))},
		"no destination":  {Conn: server},
	} {
		if send.Send(context.Background(), h) == nil {
			t.Errorf("%s: sent", what)
		}
	}
}

// TestTakeOverHostile sends what no guard sends: after each the next connection is taken, and no descriptor is left open.
func TestTakeOverHostile(t *testing.T) {
	send, take, _ := handOver(t)
	_, server := tcpPair(t)
	good := Handed{Conn: server, Name: "api.example", To: netip.MustParseAddrPort("192.0.2.1:443"), Read: []byte("x")}
	packet, err := good.encode()
	if err != nil {
		t.Fatal(err)
	}
	raw := func(fds ...int) []byte { return unix.UnixRights(fds...) }
	socket := func(domain, kind, proto int) int {
		fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, proto)
		if err != nil {
			mustrun.Lacks(t, "a socket of another kind: %v", err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	udp, local, unconnected := socket(unix.AF_INET, unix.SOCK_DGRAM, 0), socket(unix.AF_UNIX, unix.SOCK_STREAM, 0), socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	f, err := server.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	conn := int(f.Fd())
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	with := func(at int, value byte) []byte {
		b := bytes.Clone(packet)
		b[at] = value
		return b
	}
	hostile := map[string]struct{ b, oob []byte }{
		"no descriptor":         {packet, nil},
		"a file":                {packet, raw(int(null.Fd()))},
		"a datagram socket":     {packet, raw(udp)},
		"a unix socket":         {packet, raw(local)},
		"no peer":               {packet, raw(unconnected)},
		"another version":       {with(0, 2), raw(conn)},
		"a name without an end": {with(1, 200), raw(conn)},
		"a name too long":       {append(with(1, 255), make([]byte, 300)...), raw(conn)},
		"a part of the head":    {packet[:handedHead-1], raw(conn)},
		"too much read":         {append(bytes.Clone(packet), make([]byte, MaxRead)...), raw(conn)},
		"no bytes":              {nil, raw(conn)},
		"neither":               {nil, nil},
	}
	before := openFiles(t)
	for what, m := range hostile {
		if _, _, err := send.conn.WriteMsgUnix(m.b, m.oob, nil); err != nil {
			t.Fatal(err)
		}
		if h, err := take.Next(); !errors.Is(err, wire.ErrMalformed) && !errors.Is(err, io.EOF) {
			t.Errorf("%s: %+v, %v", what, h, err)
		}
		if err := send.Send(context.Background(), good); err != nil {
			t.Fatal(err)
		}
		h, err := take.Next()
		if err != nil || h.Name != good.Name {
			t.Fatalf("after %s: %+v, %v", what, h, err)
		}
		h.Conn.Close()
	}
	if _, _, err := send.conn.WriteMsgUnix(packet, raw(conn, conn, conn), nil); err != nil {
		t.Fatal(err)
	}
	h, err := take.Next()
	if err != nil {
		t.Fatal(err)
	}
	h.Conn.Close()
	if after := openFiles(t); after != before {
		t.Errorf("%d files open, %d before: the peer can fill the table", after, before)
	}
}

// FuzzDecodeHanded: what is decoded is encoded as it was, and nothing is larger than it may be.
func FuzzDecodeHanded(f *testing.F) {
	h := Handed{Name: "api.example", To: netip.MustParseAddrPort("192.0.2.1:443"), Read: []byte("\x16\x03\x01")}
	b, err := h.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:handedHead])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Handed
		if h.decode(b) != nil {
			return
		}
		again, err := h.encode()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again[:2], b[:2]) || !bytes.Equal(again[18:], b[18:]) {
			t.Errorf("%x is %x again", b, again)
		}
		var same Handed
		if err := same.decode(again); err != nil || same.To != h.To {
			t.Errorf("%v, then %v, %v", h.To, same.To, err)
		}
	})
}
