package main

import (
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMessageRoundTrip(t *testing.T) {
	for name, m := range map[string]message{
		"ping":  {op: opPing, id: 7},
		"error": {op: opLease, id: 1 << 31, err: true},
		"lease": {op: opLease, id: 2, name: "api.example.com", ttl: 360 * time.Second,
			addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}},
		"longest name": {op: opLease, name: strings.Repeat("a", maxName)},
		"direct":       {op: opDirect, id: 9, port: 22, addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		"held":         {op: opHeld, name: "api.example.com", port: 443, ttl: 7 * time.Second, edition: 1 << 40, addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		"stats":        {op: opPong, stats: guardStats{Queries: 1, Allowed: 2, Denied: 3, Cached: 4, Asked: 5, Failed: 6, Stripped: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := m.encode()
			if err != nil {
				t.Fatal(err)
			}
			got, err := decodeMessage(b)
			if err != nil || !reflect.DeepEqual(got, m) {
				t.Errorf("got %+v, %v; want %+v", got, err, m)
			}
		})
	}
}

func TestMessageTooLong(t *testing.T) {
	for _, m := range []message{
		{op: opLease, name: strings.Repeat("a", maxName+1)},
		{op: opLease, addrs: make([]netip.Addr, maxLeaseAddrs+1)},
		{op: opRequest, text: strings.Repeat("a", maxText+1)},
	} {
		if _, err := m.encode(); err == nil {
			t.Errorf("%d addresses, name of %d bytes: no error", len(m.addrs), len(m.name))
		}
	}
}

func channelPair(t *testing.T) (a, b *channel) {
	t.Helper()
	ours, theirs, err := newPair()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := openPair(theirs)
	if err != nil {
		t.Fatal(err)
	}
	a, b = openChannel(ours), openChannel(conn)
	t.Cleanup(func() { a.close(); b.close() })
	return a, b
}

func TestChannelPassesOneFile(t *testing.T) {
	a, b := channelPair(t)
	f, err := memfd("test", "hello")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := a.send(message{op: opPolicy, id: 3}, f); err != nil {
		t.Fatal(err)
	}
	m, got, err := b.receive()
	if err != nil || m.op != opPolicy || m.id != 3 || got == nil {
		t.Fatalf("got %+v, file %v, %v", m, got, err)
	}
	defer got.Close()
	text := make([]byte, 16)
	if n, _ := got.Read(text); strings.TrimSpace(string(text[:n])) != `"hello"` {
		t.Errorf("file holds %q", text[:n])
	}
	if _, err := got.WriteAt([]byte("x"), 0); err == nil {
		t.Error("the receiver can change what the sender has sealed")
	}
}

// TestChannelHostilePeer sends what no guard sends: packets of other sizes, and
// more descriptors than one.
func TestChannelHostilePeer(t *testing.T) {
	a, b := channelPair(t)
	for _, size := range []int{1, wireSize - 1, wireSize + 1, 4 * wireSize} {
		if _, err := b.conn.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.receive(); err != errBadMessage {
			t.Errorf("%d bytes: got %v, want %v", size, err, errBadMessage)
		}
	}
	fds := []int{int(os.Stdin.Fd()), int(os.Stdin.Fd()), int(os.Stdin.Fd())}
	packet, err := message{op: opReady}.encode()
	if err != nil {
		t.Fatal(err)
	}
	before := openFiles(t)
	if _, _, err := b.conn.WriteMsgUnix(packet, unix.UnixRights(fds...), nil); err != nil {
		t.Fatal(err)
	}
	_, file, err := a.receive()
	if err != nil {
		t.Fatal(err)
	}
	if file != nil {
		file.Close()
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files open, %d before: the peer can fill the table", after, before)
	}
	b.close()
	if _, _, err := a.receive(); err == nil || err == errBadMessage {
		t.Errorf("after the peer's end: got %v", err)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	e, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(e)
}

func FuzzDecodeMessage(f *testing.F) {
	for _, m := range []message{{op: opPing}, {op: opLease, name: "a.example", addrs: []netip.Addr{netip.MustParseAddr("::1")}}} {
		b, err := m.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(b)
		if err != nil {
			return
		}
		if len(m.name) > maxName || len(m.addrs) > maxLeaseAddrs {
			t.Fatalf("out of bounds: %d %d", len(m.name), len(m.addrs))
		}
		if _, err := m.encode(); err != nil {
			t.Fatalf("not to be encoded again: %v", err)
		}
	})
}
