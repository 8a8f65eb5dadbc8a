package wire

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
	for name, m := range map[string]Message{
		"ping":  {Op: OpPing, ID: 7},
		"error": {Op: OpLease, ID: 1 << 31, Err: true},
		"lease": {Op: OpLease, ID: 2, Name: "api.example.com", TTL: 360 * time.Second,
			Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}},
		"longest name": {Op: OpLease, Name: strings.Repeat("a", MaxName)},
		"direct":       {Op: OpDirect, ID: 9, Port: 22, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		"held":         {Op: OpLeasedTo, Name: "api.example.com", Port: 443, TTL: 7 * time.Second, Edition: 1 << 40, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		"stats":        {Op: OpPong, Stats: Stats{Queries: 1, Allowed: 2, Denied: 3, Cached: 4, Asked: 5, Failed: 6, Stripped: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := m.encode()
			if err != nil {
				t.Fatal(err)
			}
			got, err := decodeGuard(b)
			if err != nil || !reflect.DeepEqual(got, m) {
				t.Errorf("got %+v, %v; want %+v", got, err, m)
			}
		})
	}
}

func TestMessageTooLong(t *testing.T) {
	for _, m := range []Message{
		{Op: OpLease, Name: strings.Repeat("a", MaxName+1)},
		{Op: OpLease, Addrs: make([]netip.Addr, MaxLeaseAddrs+1)},
		{Op: OpRequest, Text: strings.Repeat("a", MaxText+1)},
	} {
		if _, err := m.encode(); err == nil {
			t.Errorf("%d addresses, name of %d bytes: no error", len(m.Addrs), len(m.Name))
		}
	}
}

func TestChannelPassesOneFile(t *testing.T) {
	a, b := channelPair(t)
	f, err := Memfd("test", "hello")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := a.Send(Message{Op: OpPolicy, ID: 3}, f); err != nil {
		t.Fatal(err)
	}
	m, got, err := b.Receive()
	if err != nil || m.Op != OpPolicy || m.ID != 3 || got == nil {
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
		if _, _, err := a.Receive(); err != ErrMalformed {
			t.Errorf("%d bytes: got %v, want %v", size, err, ErrMalformed)
		}
	}
	fds := []int{int(os.Stdin.Fd()), int(os.Stdin.Fd()), int(os.Stdin.Fd())}
	packet, err := Message{Op: OpReady}.encode()
	if err != nil {
		t.Fatal(err)
	}
	before := openFiles(t)
	if _, _, err := b.conn.WriteMsgUnix(packet, unix.UnixRights(fds...), nil); err != nil {
		t.Fatal(err)
	}
	_, file, err := a.Receive()
	if err != nil {
		t.Fatal(err)
	}
	if file != nil {
		file.Close()
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files open, %d before: the peer can fill the table", after, before)
	}
	b.Close()
	if _, _, err := a.Receive(); err == nil || err == ErrMalformed {
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
	for _, m := range []Message{{Op: OpPing}, {Op: OpLease, Name: "a.example", Addrs: []netip.Addr{netip.MustParseAddr("::1")}}} {
		b, err := m.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeGuard(b)
		if err != nil {
			return
		}
		if len(m.Name) > MaxName || len(m.Addrs) > MaxLeaseAddrs {
			t.Fatalf("out of bounds: %d %d", len(m.Name), len(m.Addrs))
		}
		if _, err := m.encode(); err != nil {
			t.Fatalf("not to be encoded again: %v", err)
		}
	})
}
