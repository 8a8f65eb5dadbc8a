package wire

import (
	"bytes"
	"net/netip"
	"os"
	"reflect"
	"slices"
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
		"held":         {Op: OpLeasedTo, Name: "api.example.com", Port: 443, TTL: 7 * time.Second, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		"session":      {Op: OpSession, Flag: 1, Cols: 80, Rows: 24, ID: 3, UID: 1000, PID: 42, Arg: 1 << 40, Value: -1, Text: "tests\x00make\x00\x00test\x00"},
		"stats":        {Op: OpPong, Stats: Stats{Queries: 1, Allowed: 2, Denied: 3, Cached: 4, Asked: 5, Failed: 6, Stripped: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := m.encode(MaxText)
			if err != nil {
				t.Fatal(err)
			}
			got, err := decode(b, MaxText)
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
		if _, err := m.encode(MaxText); err == nil {
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

// TestMessageMalformed: a packet is what its head says, to the byte.
func TestMessageMalformed(t *testing.T) {
	encode := func(m Message) []byte {
		b, err := m.encode(MaxText + 1)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	head, named := encode(Message{Op: OpReady}), encode(Message{Op: OpLeasedTo, Name: "a.example", Addrs: make([]netip.Addr, 1)})
	with := func(b []byte, at int, value byte) []byte {
		b = slices.Clone(b)
		b[at] = value
		return b
	}
	for what, bad := range map[string][]byte{
		"nothing": nil, "a part of the head": head[:len(head)-1], "a name cut short": named[:len(named)-17], "addresses cut short": named[:len(named)-1],
		"no operation": with(head, 0, 0), "half an error": with(head, 1, 2), "a name too long": with(slices.Concat(head, make([]byte, 255)), 2, MaxName+1),
		"too many addresses": with(slices.Concat(head, make([]byte, 33*16)), 3, MaxLeaseAddrs+1), "a text too long": encode(Message{Op: OpRequest, Text: strings.Repeat("x", MaxText+1)}),
	} {
		if m, err := decode(bad, MaxText); err == nil {
			t.Errorf("%s: %+v", what, m)
		}
	}
}

// TestChannelHostilePeer sends what no guard sends: packets of other sizes, and
// more descriptors than one.
func TestChannelHostilePeer(t *testing.T) {
	a, b := channelPair(t)
	for _, size := range []int{1, 100, textless + MaxText, textless + MaxText + 1, 4 * textless} {
		if _, err := b.conn.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.Receive(); err != ErrMalformed {
			t.Errorf("%d bytes: got %v, want %v", size, err, ErrMalformed)
		}
	}
	fds := []int{int(os.Stdin.Fd()), int(os.Stdin.Fd()), int(os.Stdin.Fd())}
	packet, err := (&Message{Op: OpReady}).encode(MaxText)
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
	for _, m := range []Message{{Op: OpPing}, {Op: OpSession, Flag: 1, Text: "sh\x00"}, {Op: OpLease, Name: "a.example", Addrs: []netip.Addr{netip.MustParseAddr("::1")}}} {
		b, err := m.encode(MaxText)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b, MaxText)
		if err != nil {
			return
		}
		if len(m.Name) > MaxName || len(m.Addrs) > MaxLeaseAddrs {
			t.Fatalf("out of bounds: %d %d", len(m.Name), len(m.Addrs))
		}
		if again, err := m.encode(MaxText); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%x became %x (%v)", b, again, err)
		}
	})
}
